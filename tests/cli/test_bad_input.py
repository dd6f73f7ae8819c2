"""Bad input of every kind: one clear line, the right exit code, at once, and no effect."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli.cli_process import Cli

from sandstream.cli.parser import build_parser

LONG = "x" * 5000
NOT_UTF8 = "\udcff"
"""How Python passes on a byte that is not UTF-8."""
NOWHERE = "nats://127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        # a flag without a value is no flag
        (["submit", "assistant", "hi", "--key", ""], "argument --key: it must not be empty"),
        (["run", "APP", "hi", "--manifest", ""], "argument --manifest: it must not be empty"),
        (["run", "APP", "hi", "--workspace", ""], "argument --workspace: it must not be empty"),
        (["actor", "harness", "--pool", ""], "argument --pool: it must not be empty"),
        (["actor", "tracing", "--store", ""], "argument --store: it must not be empty"),
        (["actor", "tracing", "--group", ""], "argument --group: it must not be empty"),
        (["actor", "memory", "--node", ""], "argument --node: it must not be empty"),
        (["setup", "--auth-dir", ""], "argument --auth-dir: it must not be empty"),
        (["stats", "--agent", ""], "argument --agent: it must not be empty"),
        # wildcards
        (["actor", "memory", "--node", "*"], "the node '*' cannot be part of a subject"),
        (["setup", "--print-auth", "--tenant", "*"], "--tenant *: the user '*' is not possible"),
        # not UTF-8
        (["submit", "assistant", NOT_UTF8], "argument input: it is not UTF-8 text"),
        (["submit", "assistant", "hi", "--key", NOT_UTF8], "argument --key: it is not UTF-8 text"),
        (["submit", "assistant", "hi", "--context", NOT_UTF8], "it is not UTF-8 text"),
        (["run", "APP", NOT_UTF8], "argument input: it is not UTF-8 text"),
        (["stats", "--agent", NOT_UTF8], "argument --agent: it is not UTF-8 text"),
        # files
        (["run", "", "hi"], "there is no file ''"),
        (["run", "DIR", "hi"], "is a directory; give the path of a Python file"),
        (["run", LONG, "hi"], "File name too long"),
        (["worker", LONG], "File name too long"),
        (["run", "CODER", "hi", "--workspace", LONG], "File name too long"),
        (["setup", "--auth-dir", LONG, "--grant", "alice=submit"], "File name too long"),
        (["setup", "--auth-dir", "APP", "--grant", "alice=submit"], "is not a directory"),
        (["run", "BINARY", "hi"], "cannot contain null bytes"),
        # flags that do not go together
        (["actor", "--pool", "x"], "--pool needs a kind"),
        (["setup", "--print-auth", "--check"], "--check has no meaning with --print-auth"),
        (["setup", "--auth-dir", "DIR", "--replicas", "3"], "--replicas has no meaning with"),
        (["show", "r1", "--force"], "--force needs --html"),
        # a pool that no actor could take work from
        (["worker", "APP", "--harness-pool", "a.b"], "the harness pool 'a.b' cannot be part of"),
        # numbers without end, and words
        (["runs", "--limit", "9" * 5000], "argument --limit: 9"),
        (["runs", "--limit", "9" * 19], "argument --limit: 9999999999999999999 is too large"),
        (["submit", "assistant", "hi", "--max-seconds", "1e300"], "1e300 s is too long"),
        (["retry", "r1", "--max-seconds", "1e300"], "1e300 s is too long: use at most"),
        (["submit", "assistant", "hi", "--approval-expires", "1e10"], "1e10 s is too long"),
        ([LONG], "x…"),
        # servers that cannot be
        (["runs", "--nats-url", " "], "NATS_URL: ' ' names no server"),
        (["runs", "--nats-url", "*"], "NATS_URL: '*' is not a server address"),
        (["runs", "--nats-url", LONG], "is not a server address; write nats://host:4222"),
        (["runs", "--nats-url", "nats://h:99999"], "'nats://h:99999' is not a server address"),
        (["runs", "--nats-url", "http://u:secret@h"], "NATS_URL: 'h' is not a server address"),
    ],
    ids=lambda it: " ".join(it).replace(LONG, "LONG") if isinstance(it, list) else "",
)
def test_is_refused_before_anything_happens(
    cli: Cli, app: Path, coder: Path, tmp_path: Path, arguments: list[str], why: str
) -> None:
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"a\0b")
    names = {"APP": str(app), "CODER": str(coder), "DIR": str(tmp_path), "BINARY": str(binary)}
    done = cli.here(*(names.get(it, it) for it in arguments))
    assert (done.code, done.out) == (2, ""), done
    assert why in done.err.splitlines()[-1]
    assert len(done.err.splitlines()[-1]) < 500 and "None" not in done.err
    assert "secret" not in done.err and "this is a bug" not in done.err
    assert not cli.home.exists()


def test_names_of_files_need_not_be_text(cli: Cli, tmp_path: Path) -> None:
    done = cli.here("run", str(tmp_path / f"{NOT_UTF8}.py"), "hi")
    assert done.code == 2 and "there is no file" in done.err


def test_a_file_that_may_not_be_read(cli: Cli, app: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text(app.read_text())
    secret.chmod(0)
    without = "-dac_override,-dac_read_search"  # what lets root read every file
    drop = ["setpriv", f"--bounding-set={without}", f"--inh-caps={without}"]
    for command in (["run", str(secret), "hi"], ["worker", str(secret)]):
        done = subprocess.run(
            [
                *(drop if os.geteuid() == 0 else []),
                sys.executable,
                "-m",
                "sandstream.cli",
                *command,
            ],
            env=cli.env,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"sandstream: '{secret}': Permission denied\n"


def test_a_page_cannot_be_written_where_no_file_can_be(served: Cli, finished: str) -> None:
    done = served.here("show", finished, "--html", LONG)
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith("File name too long\n") and len(done.err) < 300


@pytest.mark.parametrize("command", [["parked", "show"], ["conversations", "show"], ["show"]])
def test_what_does_not_exist_is_not_told_in_full(served: Cli, command: list[str]) -> None:
    done = served.here(*command, LONG)
    assert done.code in (2, 3) and "xxx…" in done.err and len(done.err) < 400


def test_help_fits_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = [build_parser()]
    for parser in found:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                found += action.choices.values()
    assert len(found) > 30
    lines = [line for parser in found for line in parser.format_help().splitlines()]
    wide = [line for line in lines if len(line) > 80]
    assert all(line.startswith("  sandstream ") for line in wide), wide  # to be copied as it is


@pytest.mark.parametrize("columns", ["80", "200"])
@pytest.mark.parametrize("nats_url", ["", NOWHERE])
def test_doctor_fits_the_screen(cli: Cli, columns: str, nats_url: str) -> None:
    done = cli("doctor", env={"COLUMNS": columns, "NATS_URL": nats_url, "OPENAI_API_KEY": ""})
    assert "→ " in done.out or not nats_url
    words = [line for line in done.out.splitlines() if "/" not in line]  # a path is one word
    assert [line for line in words if len(line) > int(columns)] == []
    continued = [line for line in done.out.splitlines() if line.startswith(" ")]
    assert all(line.startswith(" " * 25) and line[25] != " " for line in continued)
