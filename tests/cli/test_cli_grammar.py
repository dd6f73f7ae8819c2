"""The grammar: help, versions, bad usage, what is imported, the generated page."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest
from cli.cli_process import Cli

from sandstream.cli.exits import MEANINGS, Exit
from sandstream.cli.parser import build_parser
from sandstream.version import __version__

ROOT = Path(__file__).parents[2]
COMMANDS = {
    *("up", "actor", "worker", "run", "submit", "watch", "runs", "show", "cancel", "retry"),
    "replay",
    *("parked", "doctor", "setup", "stats", "sandboxes", "artifacts", "memory"),
    *("approvals", "approve", "reject", "send", "conversations", "session", "sessions"),
    "tui",
}
FOR_PEOPLE_ONLY = {"tui"}
"""It has no output that a program could read."""


def _subparsers() -> dict[str, argparse.ArgumentParser]:
    actions = build_parser()._actions
    (commands,) = [one for one in actions if isinstance(one, argparse._SubParsersAction)]
    return dict(commands.choices)


def test_every_command_is_there_with_examples() -> None:
    parsers = _subparsers()
    assert set(parsers) == COMMANDS
    for name, parser in parsers.items():
        help_text = parser.format_help()
        assert f"examples:\n  sandstream {name}" in help_text
        assert ("--json" in help_text) != (name in FOR_PEOPLE_ONLY)
        assert "--nats-url" in help_text


@pytest.mark.parametrize("name", ["sandboxes", "artifacts", "conversations", "memory", "session"])
def test_every_action_has_help_with_examples(name: str) -> None:
    (actions,) = [
        one for one in _subparsers()[name]._actions if isinstance(one, argparse._SubParsersAction)
    ]
    for action, parser in actions.choices.items():
        help_text = parser.format_help()
        assert f"examples:\n  sandstream {name} {action}" in help_text
        assert "--json" in help_text and "--nats-url" in help_text


def test_every_help_fits_a_narrow_terminal() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    helps = page.split("```")[1::2]
    assert len(helps) > 40
    assert [line for it in helps for line in it.splitlines() if len(line) > 80] == []


def test_help_documents_the_exit_codes() -> None:
    text = " ".join(build_parser().format_help().split())
    assert [int(code) for code in Exit] == [0, 1, 2, 3, 4, 5, 6, 130]
    for code, meaning in MEANINGS.items():
        assert f" {code} {meaning}" in text


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_starts_without_the_heavy_packages(flag: str) -> None:
    program = (
        "import sys\n"
        "from sandstream.cli.main import main\n"
        "try:\n"
        f"    main([{flag!r}])\n"
        "except SystemExit as ended:\n"
        "    assert ended.code == 0\n"
        "heavy = {'nats', 'openai', 'pydantic', 'msgspec', 'httpx', 'asyncio', 'ssl', 'uvloop'}\n"
        "print(sorted(heavy & set(sys.modules)), len(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    heavy, _, number = done.stderr.strip().rpartition(" ")
    assert heavy == "[]"
    assert int(number) < 130
    assert __version__ in done.stdout or "exit codes" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["frobnicate"],
        ["runs", "--limit", "0"],
        ["runs", "--status", "sleepy"],
        ["watch", "run", "--after", "-3"],
        ["watch", "--after", "3"],
        ["replay", "run", "--speed", "0"],
        ["replay", "run", "--speed", "2", "--instant"],
        ["up", "--replicas", "none"],
        ["submit", "a", "b", "--timeout", "1"],
        ["submit", "a", "b", "--wait", "--timeout", "nan"],
        ["submit", "a", "b", "--context", "{"],
        ["submit", "a", "b", "--context", "[1]"],
        ["submit", "", "b"],
        ["submit", "a", " "],
        ["submit", "a", "-"],
        ["submit", "a", "b", "--if-busy", "queue"],
        ["submit", "a", "b", "--session", ""],
        ["submit", "a", "b", "--session", "s", "--if-busy", "hang"],
        ["submit", "a", "b", "--max-tokens", "0"],
        ["approve"],
        ["approve", "run", "--as", ""],
        ["approve", "run", "--message", "no"],
        ["reject", "run", "--message", " "],
        ["approvals", "--limit", "0"],
        ["send", "run"],
        ["send", "run", " "],
        ["conversations", "burn"],
        ["conversations", "show"],
        ["parked", "show"],
        ["parked", "ls", "x/1"],
        ["parked", "burn", "x/1"],
        ["actor", "gardener"],
        ["run", "app.py"],
        ["up", "--pool", "a.b"],
        ["actor", "sandbox", "--provider", "moon"],
        ["actor", "sandbox", "--isolation", "some"],
        ["actor", "sandbox", "--pool", "main"],
        ["actor", "harness", "--isolation", "none"],
        ["sandboxes", "burn"],
        ["sandboxes", "show"],
        ["sandboxes", "exec", "x"],
        ["sandboxes", "exec", "x", "--timeout", "0", "--", "ls"],
        ["sandboxes", "reap", "--grace", "soon"],
        ["artifacts"],
        ["artifacts", "ls"],
        ["artifacts", "output", "run"],
        ["run", "app.py", "hi", "--port", "0"],
        ["run", "app.py", "hi", "--port", "70000"],
    ],
    ids=" ".join,
)
def test_bad_usage_is_exit_code_2_and_never_a_traceback(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    from sandstream.cli.main import main

    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = int(ended.code or 0)
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert "sandstream" in captured.err and "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["stats", "--agnt", "x"], "sandstream stats"),
        (["sandboxes", "ls", "--agnt"], "sandstream sandboxes ls"),
        (["--agnt"], "sandstream"),
    ],
    ids=["command", "action", "none"],
)
def test_a_typo_is_refused_by_the_command_that_knows_its_options(
    arguments: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from sandstream.cli.main import main

    with pytest.raises(SystemExit):
        main(arguments)
    said = capsys.readouterr().err
    assert said.startswith(f"usage: {command} [")
    assert f"\n{command}: error: unrecognized arguments: --agnt" in said


def test_the_kinds_of_actors(cli: Cli) -> None:
    listed = cli("actor")
    assert listed.code == 0 and listed.out.startswith("harness ")
    assert "sandstream worker" in listed.err
    assert [line["kind"] for line in cli("actor", "--json").lines] == [
        "harness",
        "sandbox",
        "sessions",
        "tracing",
        "memory",
    ]


def test_cli_page_is_generated_from_the_help() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate_cli.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_no_server_is_exit_code_4_in_one_line(cli: Cli) -> None:
    done = cli("runs", "--nats-url", "nats://127.0.0.1:1")
    assert (done.code, done.out) == (4, "")
    assert done.err.startswith("sandstream: cannot connect to NATS at nats://127.0.0.1:1")
    assert len(done.err.splitlines()) == 1


def test_debug_shows_where(cli: Cli) -> None:
    process = cli.start("runs", "--nats-url", "nats://127.0.0.1:1", "--debug")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and "Traceback" in err


def test_bad_settings_are_exit_code_2(cli: Cli) -> None:
    assert cli("runs", "--sync", "often").code == 2
    assert cli("--prefix", "a b", "runs").code == 2
    assert cli("runs", env={"SANDSTREAM_REPLICAS": "many"}).code == 2
