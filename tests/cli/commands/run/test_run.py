"""``sandstream run``, and what can be wrong with an app file."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest
from cli.cli_process import APP, Cli
from support.nats_server import NatsServer

TWO = """
from sandstream import Agent
one = Agent(name="first agent", model="gpt-5")
two = Agent(name="second", model="gpt-5")
"""


def test_run_shows_its_work_on_stderr_and_the_output_on_stdout(served: Cli, app: Path) -> None:
    done = served("run", f"{app}:assistant", "-", input="How is the weather?")
    assert (done.code, done.out) == (0, "It is sunny in Paris.\n")
    labels = [line[10:18].strip() for line in done.err.splitlines()]
    assert labels == ["start", "user", "model", "call", "result", "model", "says", "done"]


def test_run_streamed(served: Cli, app: Path) -> None:
    done = served("run", str(app), "How is it?", "--stream")
    assert done.out == "It is sunny in Paris.\n"
    assert done.err.count("It is sunny in Paris.") == 1


def test_a_streamed_run_starts_once_the_terminal_listens(
    cli: Cli, app: Path, tmp_path: Path
) -> None:
    server = NatsServer(tmp_path / "traced", config="debug: true\ntrace: true")
    server.start()
    try:
        server.set_up()
        for options in ([], ["--key", "k1"]):
            done = cli("run", str(app), "How?", "--stream", *options, env={"NATS_URL": server.url})
            assert done.code == 0, done.err
    finally:
        server.kill()
    seen = (tmp_path / "traced" / "nats.log").read_text()
    runs = re.findall(r"PUB sandstream\.run\.([^. ]+)\.start\.", seen)
    assert len(runs) == 2 and runs[1] == "k1"
    for run in runs:
        start = re.search(rf"PUB sandstream\.run\.{run}\.start\.", seen)
        output = re.search(rf"\[SUB sandstream\.live\.{run}\.output ", seen)
        assert start is not None and output is not None
        assert output.start() < start.start()
        # the caller's own events, and those that the terminal shows
        live = re.findall(rf"\[SUB sandstream\.live\.{run}\.> ", seen[: start.start()])
        assert len(live) == 2


def test_run_with_a_key_is_the_same_run(served: Cli, app: Path) -> None:
    command = ("run", str(app), "How is it?", "--key", "order 17", "--json")
    first = served(*command, "--quiet")
    assert (first.one["status"], first.one["output"]) == ("completed", "It is sunny in Paris.")
    assert first.err == ""
    again = served(*command, "--stream")
    assert [line["event"]["type"] for line in again.lines[:-1]][-1] == "run.done"
    assert again.lines[-1] == first.one


@pytest.mark.parametrize(
    ("said", "options", "why"),
    [
        ("break", [], "No such luck."),
        ("for ever", ["--max-turns", "2"], "max_turns: Max turns (2) exceeded"),
    ],
)
def test_a_failed_run_is_exit_code_1(
    served: Cli, app: Path, said: str, options: list[str], why: str
) -> None:
    done = served("run", str(app), said, *options)
    assert (done.code, done.out) == (1, "")
    assert why in done.err.splitlines()[-1]


def test_ctrl_c_cancels_the_run(served: Cli, app: Path) -> None:
    process = served.start("run", str(app), "be slow, please")
    assert "start" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "cancelled" in err and "Traceback" not in err


def test_foreign_text_cannot_steer_the_terminal(served: Cli, app: Path) -> None:
    done = served("run", str(app), "escape")
    assert "\x1b" not in done.err and "red alert" in done.err
    assert done.out == "red \x1b[31malert\x1b[0m\n"  # to a program, what the model said


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (None, "there is no file"),
        ("agent = (\n", "app.py:1: '(' was never closed"),
        ("\nimport nothing_of_this_name\n", "app.py:2: ModuleNotFoundError"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("x = 1", "defines no agent"),
        (TWO.replace("second", "first agent"), "two agents are named 'first agent'"),
        (APP.replace('RunConfig(workflow_name="weather")', "7"), "run_config must be a RunConfig"),
    ],
    ids=["missing", "syntax", "import", "exit", "no agents", "duplicate", "config"],
)
def test_bad_files(
    cli: Cli,
    tmp_path: Path,
    source: str | None,
    why: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sandstream.cli.main import main

    path = tmp_path / "app.py"
    if source is not None:
        path.write_text(source)
    monkeypatch.setattr("sys.path", [*sys.path])
    for arguments in (["run", str(path), "hi"], ["worker", str(path)], ["up", str(path)]):
        assert main(arguments) == 2
        captured = capsys.readouterr()
        assert why in captured.err and captured.out == ""
        assert len(captured.err.splitlines()) == 1
    assert not cli.home.exists()  # nothing was started


def test_which_agent(cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sandstream.cli.commands.worker.apps import choose_agent, load_app, split_target
    from sandstream.cli.main import main

    path = tmp_path / "two.py"
    path.write_text(TWO)
    assert main(["run", str(path), "hi"]) == 2
    assert "there are: first agent, second" in capsys.readouterr().err
    assert main(["run", f"{path}:third", "hi"]) == 2
    file, name = split_target(f"{path}:first agent")
    assert choose_agent(load_app(file), name).name == "first agent"
    assert choose_agent(load_app(file), "two").name == "second"


def test_a_file_that_raises_what_has_no_text_is_named(tmp_path: Path) -> None:
    from sandstream.cli.commands.worker.apps import load_app
    from sandstream.cli.exits import CliError

    file = tmp_path / "app.py"
    file.write_text(
        "class Unspeakable(Exception):\n"
        "    def __str__(self):\n"
        "        raise RuntimeError('no words')\n"
        "raise Unspeakable\n"
    )
    with pytest.raises(CliError, match=r"app.py:4: Unspeakable \(it has no text"):
        load_app(str(file))
