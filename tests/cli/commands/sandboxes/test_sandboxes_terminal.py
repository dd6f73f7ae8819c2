"""Sandboxes on a terminal: a question before removal, whole ids, nothing said twice."""

from __future__ import annotations

from pathlib import Path

from cli.cli_process import Cli
from cli.cli_terminal import on_terminal


def test_a_streamed_run_with_live_output_ends_with_its_words_once(
    sandboxed: Cli, coder: Path, tmp_path: Path
) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text('{"entries": {"a.txt": {"type": "file", "content": "from a file\\n"}}}')
    command = ("run", str(coder), "look around", "--stream", "--manifest", str(manifest))
    code, text, raw = on_terminal(sandboxed, *command)
    assert code == 0, text
    assert text.count("Seen.") == 1
    assert "          │        from a file\n" in text
    assert "\x1b[2m          │        from a file\x1b[0m" in raw


def test_removal_is_asked_for_and_ids_are_whole(sandboxed: Cli) -> None:
    run = sandboxed.here("submit", "coder", "look around", "--wait", "--json").one["run_id"]
    sandbox = sandboxed.here("sandboxes", "show", run, "--json").one["summary"]["sandbox"]
    code, text, _ = on_terminal(sandboxed, "sandboxes")
    assert code == 0
    assert sandbox in text and max(map(len, text.splitlines())) <= 80
    code, text, _ = on_terminal(sandboxed, "sandboxes", "rm", run, typed="n\n")
    assert code == 1 and f"remove sandbox {sandbox} (stopped)? for good [y/N]" in text
    assert "nothing was removed" in text
    code, text, _ = on_terminal(sandboxed, "sandboxes", "rm", run, typed="y\n")
    assert code == 0 and f"deleted {sandbox}" in text
