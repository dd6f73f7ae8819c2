"""``sandstream run`` with sandbox agents: workspaces, manifests, live output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.cli_process import Cli


def test_a_workspace_is_copied_in_and_output_is_shown_as_it_comes(
    sandboxed: Cli, coder: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {number}\n" for number in range(20)))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text("inner \x1b[31m\n")
    command = ("run", str(coder), "look around", "--workspace", ".")
    process = sandboxed.start(*command, cwd=tmp_path)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "Seen.\n"), err
    lines = err.splitlines()
    at = next(number for number, line in enumerate(lines) if line[10:18].strip() == "call")
    shown = [line[10:].split(maxsplit=1) for line in lines[at + 1 : at + 14]]
    assert shown[:12] == [["│", f"line {number}"] for number in range(12)]
    assert shown[12] == ["│", "… 8 more lines"]
    assert lines[at + 14][10:].startswith("result   exec_command → exit code 0 · ")
    run = lines[-1].rpartition(" ")[2]
    assert lines[-1].strip() == f"files: sandstream artifacts ls {run}"
    got = sandboxed.here("artifacts", "ls", run, "--recursive", "--json").lines
    assert [one["path"] for one in got] == ["a.txt", "sub", "sub/b.txt"]


def test_a_manifest_from_a_file(sandboxed: Cli, coder: Path, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    entries = {"hello.txt": {"type": "file", "content": "from the manifest\n"}}
    path.write_text(json.dumps({"entries": entries}))
    done = sandboxed(
        *("run", str(coder), "look around", "--manifest", str(path), "--quiet", "--json"),
        *("--port", "8080", "--port", "8081", "--network"),
    )
    assert (done.code, done.err) == (0, "")
    found = sandboxed.here("sandboxes", "show", done.one["run_id"], "--json").one["summary"]
    assert (found["ports"], found["network"], found["files"]) == ([8080, 8081], "host", 1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file"),
        ("{nope", "is not JSON: "),
        ("[]", "must be an object"),
        ('{"entriesx": {}}', "unknown: entriesx; a manifest has version, root, entries"),
        ('{"entries": {"a": {"type": "file"}}}', "entry a: content: Field required"),
        ('{"entries": {"a": {"type": "fail"}}}', "entry a: unknown entry type `fail`; known: "),
        ('{"entries": {"a": 7}}', "entry a: an entry must be"),
        ('{"entries": {"../a": {"type": "file", "content": ""}}}', "entry ../a: path leaves"),
        (
            '{"entries": {"d": {"type": "dir", "children": {"x": {"type": "file"}}}}}',
            "entry d/x: content: Field required",
        ),
        ('{"entries": {"d": {"type": "local_dir", "src": "no-dir"}}}', "entry d: cannot take"),
        (
            '{"entries": {"d": {"type": "local_file", "src": "/etc/passwd"}}}',
            "entry d: cannot take local file /etc/passwd: it lies outside",
        ),
        ('{"root": "here"}', "root must be absolute"),
        ('{"users": [{"name": "bob"}]}', "has no users and groups"),
        ('{"environment": {"value": {"A": 1}}}', "a variable must be text"),
    ],
)
def test_a_bad_manifest_is_told_with_its_entry_before_anything_starts(
    coder: Path,
    tmp_path: Path,
    text: str | None,
    why: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sandstream.cli.main import main

    monkeypatch.setenv("SANDSTREAM_HOME", str(tmp_path / "home"))
    path = tmp_path / "manifest.json"
    if text is not None:
        path.write_text(text)
    assert main(["run", str(coder), "hi", "--manifest", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1
    assert captured.err.startswith(f"sandstream: --manifest {path}") and why in captured.err
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--workspace", "no-such-directory"], "does not exist"),
        (["--workspace", __file__], "is not a directory"),
        (["--workspace", "/"], "/ is outside the working directory"),
        (["--manifest", "a", "--workspace", "b"], "exclude each other"),
    ],
)
def test_bad_workspaces(
    coder: Path, flags: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from sandstream.cli.main import main

    assert main(["run", str(coder), "hi", *flags]) == 2
    assert why in capsys.readouterr().err


def test_an_agent_without_a_sandbox_takes_no_such_flags(
    app: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sandstream.cli.main import main

    assert main(["run", str(app), "hi", "--workspace", ".", "--port", "80"]) == 2
    assert "--workspace, --port: the agent 'assistant' is not a SandboxAgent" in (
        capsys.readouterr().err
    )
