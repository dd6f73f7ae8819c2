"""``submit``, ``watch``, ``runs``, ``show``, ``cancel``, ``replay`` on a served installation."""

from __future__ import annotations

import json
import subprocess

import pytest
from cli.cli_process import Cli

pytestmark = pytest.mark.timeout(60)


def test_submit_prints_the_run_and_watch_follows_it(served: Cli) -> None:
    submitted = served("submit", "assistant", "How is the weather?")
    run = submitted.out.strip()
    assert submitted.code == 0 and submitted.err == ""
    watched = served("watch", run)
    assert watched.code == 0
    labels = [line[10:18].strip() for line in watched.out.splitlines()]
    assert labels == ["start", "user", "model", "call", "result", "model", "says", "done"]
    assert 'get_weather(city="Paris")' in watched.out
    assert "\x1b" not in watched.out


def test_watch_and_show_mask_what_looks_like_a_key(served: Cli) -> None:
    submitted = served("submit", "assistant", "The password=hunter22, how is the weather?")
    run = submitted.out.strip()
    for command in ("watch", "show"):
        told = served(command, run)
        assert "password=[redacted]" in told.out and "hunter22" not in told.out


def test_submit_waits_for_the_output(served: Cli) -> None:
    key = "a key with spaces"
    first = served("submit", "assistant", "-", "--wait", "--key", key, input="How is it?")
    assert (first.code, first.out) == (0, "It is sunny in Paris.\n")
    again = served("submit", "assistant", "another input", "--wait", "--key", key, "--json")
    assert again.one["output"] == "It is sunny in Paris."
    assert again.one["run_id"] in first.err


def test_submit_ends_by_the_status_of_the_run(served: Cli) -> None:
    broken = served("submit", "assistant", "break", "--wait")
    assert (broken.code, broken.out) == (1, "")
    assert "No such luck." in broken.err
    many = served("submit", "assistant", "for ever", "--wait", "--json", "--max-turns", "2")
    assert (many.code, many.one["status"], many.one["turns"]) == (1, "max_turns", 2)
    told = served("submit", "assistant", "for ever", "--wait", "--max-turns", "2").err
    assert told.endswith(" did not complete: max_turns: Max turns (2) exceeded\n")


def test_submit_to_nobody_is_not_found(served: Cli) -> None:
    done = served("submit", "nobody", "hi")
    assert (done.code, done.out) == (3, "")
    assert "(known: assistant" in done.err


def test_submit_gives_up_waiting_and_cancel_stops_the_run(served: Cli) -> None:
    waited = served("submit", "assistant", "be slow", "--wait", "--timeout", "0.5", "--key", "s1")
    assert waited.code == 5 and "sandstream watch s1" in waited.err
    running = [run["run_id"] for run in served("runs", "--status", "running", "--json").lines]
    assert "s1" in running
    cancelled = served("cancel", "s1", "--reason", "enough", "--json")
    assert (cancelled.code, cancelled.one["status"]) == (0, "cancelled")
    assert cancelled.one["error"]["message"] == "enough"
    again = served("cancel", "s1")
    assert (again.code, again.out) == (0, "cancelled\n") and "had ended before" in again.err
    assert served("watch", "s1").code == 1


def test_cancel_after_the_turn(served: Cli) -> None:
    run = served("submit", "assistant", "hang", "--json").one["run_id"]
    asked = served("cancel", run, "--after-turn", "--json")
    assert asked.code == 0
    assert served("cancel", run, "--json").one["status"] == "cancelled"


def test_watch_as_json_and_after_a_sequence(served: Cli, finished: str) -> None:
    everything = served("watch", finished, "--json")
    kinds = [line["event"]["type"] for line in everything.lines]
    assert kinds[0] == "run.started" and kinds[-1] == "run.done"
    assert all(line["run_id"] == finished and line["time"] for line in everything.lines)
    middle = everything.lines[3]["sequence"]
    rest = served("watch", finished, "--json", "--after", str(middle))
    assert rest.lines == everything.lines[4:]
    told = served("watch", finished, "--after", str(middle))
    assert told.code == 0 and "get_weather" not in told.out
    nothing = served("watch", finished, "--after", str(everything.lines[-1]["sequence"]))
    assert (nothing.code, nothing.out) == (0, "")


def test_runs_newest_first(served: Cli, finished: str) -> None:
    listed = served("runs", "--limit", "200", "--json")
    times = [run["started_at"] for run in listed.lines]
    assert times == sorted(times, reverse=True)
    (mine,) = [run for run in listed.lines if run["run_id"] == finished]
    assert (mine["agent"], mine["status"], mine["turns"]) == ("assistant", "completed", 2)
    assert len(served("runs", "--limit", "1", "--json").lines) == 1
    table = served("runs", "--limit", "200").out.splitlines()
    assert table[0].split()[:3] == ["RUN", "STATUS", "AGENT"]
    row = next(line for line in table if line.startswith(finished))
    assert row.split()[1:3] == ["completed", "assistant"]
    assert row.endswith("It is sunny in Paris.")


def test_runs_fit_the_columns(served: Cli, finished: str) -> None:
    table = served("runs", env={"COLUMNS": "80"}).out.splitlines()
    assert max(map(len, table)) <= 80


def test_show(served: Cli, finished: str) -> None:
    shown = served("show", finished)
    assert shown.code == 0
    for text in (
        f"run       {finished}\n",
        "status    completed\n",
        "user         How is the weather?\n",
        'assistant    → get_weather(city="Paris")\n',
        "get_weather  ← 21 degrees in Paris",
        "assistant    It is sunny in Paris.\n",
    ):
        assert text in shown.out
    assert "run.started" not in shown.out
    assert "run.started" in served("show", finished, "--events").out
    whole = served("show", finished, "--json").one
    assert whole["summary"]["output"] == "It is sunny in Paris."
    assert [item.get("type", "message") for item in whole["conversation"]] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert whole["events"][-1]["event"]["status"] == "completed"


def test_replay_is_what_watch_saw(served: Cli, finished: str) -> None:
    watched = served("watch", finished).out
    assert served("replay", finished, "--speed", "3").out == watched
    replayed = served("replay", finished, "--instant", "--json")
    assert replayed.lines == served("watch", finished, "--json").lines


@pytest.mark.parametrize("command", ["watch", "show", "cancel", "replay"])
def test_an_unknown_run_is_not_found(served: Cli, command: str) -> None:
    done = served(command, "no-such-run")
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("sandstream: there is no run 'no-such-run'")


def test_a_run_id_that_cannot_be_one_is_bad_usage(served: Cli) -> None:
    assert served("watch", "no such run").code == 2


def test_a_closed_pipe_is_silent(served: Cli, finished: str) -> None:
    process = served.start("watch", "--json")
    assert json.loads(process.stdout.readline())
    process.stdout.close()
    served("submit", "assistant", "one more", "--wait")
    assert process.wait(30) == 0
    assert process.stderr.read() == ""
    process.stderr.close()
    process.stdin.close()


def test_a_task_without_a_harness_waits(cli: Cli, app: object) -> None:
    with cli.service("worker", str(app)):
        submitted = cli("submit", "assistant", "hi", "--json")
        run = submitted.one["run_id"]
        assert "no harness of pool main is running" in submitted.err
        shown = cli("show", run)
        assert shown.code == 3 and "waits for a harness" in shown.err
        watching = cli.start("watch", run, stderr=subprocess.DEVNULL)
        with cli.service("actor", "harness"):
            out, _ = watching.communicate(timeout=30)
        assert watching.returncode == 0 and "It is sunny in Paris." in out
