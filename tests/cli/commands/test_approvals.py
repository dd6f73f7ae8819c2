"""``approvals``, ``approve``, ``reject``, ``send``; what ``run`` and ``submit`` do meanwhile."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli.cli_process import DEADLINE_S, Cli, wait_until

pytestmark = pytest.mark.timeout(60)


def waiting(team: Cli, agent: str, input: str, key: str, *more: str) -> None:
    """Start a run, and come back when it waits for a person."""
    assert team.here("submit", agent, input, "--key", key, *more).code == 0
    wait_until(
        lambda: team.here("runs", "--status", "waiting", "--json").out.count(f'"{key}"'), key
    )


def output_of(team: Cli, run: str) -> Any:
    done = team.here("submit", "manager", "the same run again", "--key", run, "--wait", "--json")
    assert done.code == 0, done
    return done.one["output"]


def calls_of(team: Cli, run: str) -> dict[str, dict[str, Any]]:
    found = team.here("approvals", "--json").lines
    return {it["call"]: it for it in found if it["root_run"] == run}


def test_a_call_is_listed_approved_and_remembered(team: Cli) -> None:
    waiting(team, "manager", "one refund", "a1", "--approval-expires", "3600")
    (listed,) = calls_of(team, "a1").values()
    assert (listed["run_id"], listed["agent"], listed["tool"]) == ("a1", "manager", "refund")
    table = team("approvals", env={"COLUMNS": "80"})
    (row,) = [line for line in table.out.splitlines() if line.startswith("a1 ")]
    assert re.search(r"t1-0 +manager +refund\(amount=5, .* in (1h00|59)m", row)
    assert max(map(len, table.out.splitlines())) <= 80
    assert "sandstream approve " in table.err
    summary = team.here("show", "a1", "--json").one["summary"]
    assert (summary["status"], summary["approvals"]) == ("waiting", 1)
    approved = team.here("approve", "a1", "--as", "ann")
    assert (approved.code, approved.err) == (0, "")
    assert approved.out.startswith('approved refund(amount=5, customer="Cleo") of run a1')
    assert output_of(team, "a1") == "Refunded."
    (step,) = team.here("show", "a1", "--json").one["tree"]["steps"]
    assert (step["kind"], step["decision"], step["decided"]["by"]) == (
        "approval",
        "approved",
        "ann",
    )
    assert step["decided_at"] > step["time"]
    assert not calls_of(team, "a1")
    shown = team.here("show", "a1").out
    assert re.search(r"approval +refund\(amount=5.*approved by ann · after \d", shown)
    assert re.search(r"approval refund .* approved by ann", shown)


def test_who_comes_second_hears_who_was_first(team: Cli) -> None:
    waiting(team, "manager", "one refund", "a2")
    assert team.here("reject", "a2", "t1-0", "--as", "bob", "--message", "Not today.").code == 0
    again = team.here("approve", "a2", "t1-0")
    assert (again.code, again.out) == (1, "")
    assert "refund (t1-0) of run a2 was rejected already by bob: Not today. (" in again.err
    output_of(team, "a2")
    assert team.here("approve", "a2").code == 1
    items = team.here("show", "a2", "--json").one["conversation"]
    assert "Not today." in [item.get("output") for item in items]


def test_several_calls_must_be_named(team: Cli) -> None:
    waiting(team, "manager", "two refunds", "a3")
    which = team.here("approve", "a3")
    assert (which.code, which.out) == (2, "")
    assert "sandstream approve a3 t1-0   refund(amount=1" in which.err
    assert "sandstream approve a3 t1-1   refund(amount=2" in which.err
    gone = team.here("reject", "a3", "t7-0")
    assert gone.code == 3 and "sandstream reject a3 t1-1" in gone.err
    call_id = calls_of(team, "a3")["t1-1"]["call_id"]
    decided = team.here("reject", "a3", call_id, "--json").one
    assert (decided["call"], decided["approve"]) == ("t1-1", False)
    assert team.here("approve", "a3", "t1-0").code == 0
    assert output_of(team, "a3") == "Both done."


def test_always_holds_for_later_calls(team: Cli) -> None:
    waiting(team, "cashier", "two refunds", "a4")
    assert team.here("approve", "a4", "t1-0", "--always").code == 0
    done = output_of(team, "a4")  # the other call of the same tool asks nobody any more
    assert done == "Both done."


def test_what_cannot_be_decided_is_said(team: Cli) -> None:
    for command in ("approve", "reject"):
        nobody = team.here(command, "no-such-run")
        assert (nobody.code, nobody.out) == (3, "") and "there is no run" in nobody.err
    team.here("submit", "writer", "chat", "--key", "a5", "--wait")
    over = team.here("approve", "a5")
    assert over.code == 3 and "run a5 is over (completed): no call of it waits" in over.err
    assert team.here("approve", "a5", "--as", " ").code == 2
    assert team.here("reject", "a5", "--message", "").code == 2


def test_a_question_of_a_run_below_is_answered_at_the_top(team: Cli) -> None:
    waiting(team, "manager", "settle", "a6")
    calls = calls_of(team, "a6")
    assert {it["run_id"] for it in calls.values()} == {"a6", "a6_t1-0"}
    assert team.here("approve", "a6", "t1-1").code == 0
    below = wait_until(lambda: calls_of(team, "a6"), "one call is left")
    assert [it["run_id"] for it in below.values()] == ["a6_t1-0"]
    assert team.here("approve", "a6", "--as", "ann").out.endswith(" of run a6_t1-0\n")
    assert output_of(team, "a6") == "All is settled."
    steps = team.here("show", "a6", "--json").one["tree"]["steps"]
    (child,) = [it for it in steps if it["kind"] == "child"]
    assert child["run"]["steps"][0]["decided"]["by"] == "ann"
    assert ("manager", "writer") in [(it.get("source"), it.get("target")) for it in steps]


def test_submit_says_what_it_waits_for(team: Cli) -> None:
    process = team.start("submit", "manager", "one refund", "--wait", "--key", "a7")
    said = [process.stderr.readline() for _ in range(3)]
    assert said[1:] == [
        "it waits for a person's approval of refund\n",
        "  sandstream approve a7 t1-0   (or reject)\n",
    ]
    assert team.here("approve", "a7").code == 0
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out, err) == (0, "Refunded.\n", "")


def test_nobody_answers_in_time(team: Cli) -> None:
    done = team.here(
        *("submit", "manager", "one refund", "--key", "a8", "--wait", "--approval-expires", "0.2")
    )
    assert done.code == 0
    (step,) = team.here("show", "a8", "--json").one["tree"]["steps"]
    assert (step["decision"], step["decided"]["expired"]) == ("rejected", True)
    assert "expired without an answer" in team.here("show", "a8").out


def test_a_waiting_run_can_be_cancelled(team: Cli) -> None:
    waiting(team, "manager", "settle", "a9")
    assert team.here("cancel", "a9", "--json").one["status"] == "cancelled"
    wait_until(lambda: not calls_of(team, "a9"), "its questions are gone")
    assert "run a9 is over (cancelled)" in team.here("approve", "a9").err


def test_send_is_read_by_the_next_model_call(team: Cli) -> None:
    waiting(team, "manager", "one refund", "b1")
    sent = team.here("send", "b1", "And thank her.", "--as", "ann")
    assert sent.code == 0 and "waits for a person first" in sent.err
    assert team.here("approve", "b1").code == 0
    output_of(team, "b1")
    shown = team.here("show", "b1").out
    assert "user      And thank her.\n" in shown
    assert "And thank her. (from ann)" in team.here("watch", "b1").out
    late = team.here("send", "b1", "Too late.")
    assert late.code == 1 and "run b1 is over (completed)" in late.err
    assert team.here("send", "no-such-run", "x").code == 3
    assert team.here("send", "b1", " ").code == 2


# --- run ------------------------------------------------------------------------------------------


def test_run_without_a_terminal_says_how_to_go_on(team: Cli, team_app: Path) -> None:
    command = ("run", f"{team_app}:manager", "one refund", "--key", "c1")
    stopped = team(*command, "--json")
    assert (stopped.code, stopped.one["status"]) == (6, "waiting")
    assert "waits for a person's approval of refund, and no terminal is available" in stopped.err
    assert "sandstream approve c1 t1-0" in stopped.err
    assert "--key c1" in stopped.err
    approved = team.here("approve", "c1")
    assert approved.code == 0 and "sandstream run app.py … --key c1" in approved.err
    gone_on = team(*command, "-q")
    assert (gone_on.code, gone_on.out) == (0, "Refunded.\n")


class Keyboard:
    """A command on a terminal whose user types."""

    def __init__(self, fd: int, process: subprocess.Popen[str]) -> None:
        self._fd = fd
        self.process = process
        self.seen = ""

    def wait_for(self, text: str, count: int = 1) -> None:
        def found() -> bool:
            if select.select([self._fd], [], [], 0.05)[0]:
                try:
                    self.seen += os.read(self._fd, 65536).decode()
                except OSError:  # the end
                    assert self.seen.count(text) >= count, self.seen
            return self.seen.count(text) >= count

        wait_until(found, f"{text!r} on the terminal")

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())


@contextmanager
def typing(team: Cli, *arguments: str) -> Iterator[Keyboard]:
    ours, theirs = pty.openpty()
    env = {"TERM": "xterm", "NO_COLOR": "1"}
    process = team.start(*arguments, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        yield Keyboard(ours, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(DEADLINE_S)
        os.close(ours)


def test_run_asks_at_the_terminal(team: Cli, team_app: Path) -> None:
    with typing(team, "run", f"{team_app}:manager", "settle", "--key", "c2") as keyboard:
        keyboard.wait_for("approve? ")
        assert 'refund(amount=3, customer="Bob")' in keyboard.seen
        assert "sandstream approve" not in keyboard.seen  # one is asked here
        keyboard.type("\n")
        keyboard.wait_for("approve? ", 2)
        keyboard.type("Bob had his money.\n")
        keyboard.wait_for("approve? ", 3)
        assert 'cashier wants to call refund(amount=12, customer="Ann")' in keyboard.seen
        keyboard.type("always\n")
        keyboard.wait_for("All is settled.")
        assert keyboard.process.wait(DEADLINE_S) == 0
    events = team.here("watch", "c2", "--json").lines
    said = {
        (it["run_id"], it["event"]["approve"], it["event"].get("message"))
        for it in events
        if it["event"]["type"] == "approval.decided" and "run" not in it["event"]
    }
    assert said == {("c2", False, "Bob had his money."), ("c2_t1-0", True, None)}


def test_whoever_is_asked_may_leave_or_be_overtaken(team: Cli, team_app: Path) -> None:
    command = ("run", f"{team_app}:manager", "one refund", "--key", "c3")
    with typing(team, *command) as keyboard:
        keyboard.wait_for("approve? ")
        keyboard.type("\x04")
        keyboard.wait_for("sandstream approve c3 t1-0")
        assert keyboard.process.wait(DEADLINE_S) == 6
    with typing(team, *command) as keyboard:
        keyboard.wait_for("approve? ")
        assert team.here("approve", "c3", "--as", "ann").code == 0
        keyboard.wait_for("another person has answered")
        keyboard.wait_for("Refunded.")
        assert keyboard.process.wait(DEADLINE_S) == 0
