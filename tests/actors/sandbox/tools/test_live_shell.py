"""Commands on a real box, and the texts about them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from actors.sandbox.tools.live_box import Workspace, in_workspace
from sandstream_actors.sandbox.tools.shell_tool import exec_command
from sandstream_providers.interface import ResolveRule

_TEXT = re.compile(
    r"Chunk ID: (?P<chunk>[0-9a-f]{6})\n"
    r"Wall time: \d+\.\d{4} seconds\n"
    r"(?:Process exited with code (?P<code>-?\d+)\n)?"
    r"(?:Process running with session ID (?P<session>\d+)\n)?"
    r"(?:Original token count: (?P<tokens>\d+)\n)?"
    r"Output:\n(?P<output>.*)",
    re.DOTALL,
)


class Read:
    """A result text taken apart."""

    def __init__(self, text: Any) -> None:
        match = _TEXT.fullmatch(text)
        assert match is not None, text
        self.chunk = match["chunk"]
        self.code = None if match["code"] is None else int(match["code"])
        self.session = None if match["session"] is None else int(match["session"])
        self.tokens = None if match["tokens"] is None else int(match["tokens"])
        self.output = match["output"]


async def shell(workspace: Workspace, cmd: str, op: str = "", **arguments: Any) -> Read:
    outcome = await workspace.call("exec_command", json.dumps({"cmd": cmd, **arguments}), op=op)
    return Read(outcome.output)


def test_output_and_exit_code(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        result = await shell(workspace, "printf out; printf err >&2; exit 3")
        assert (result.code, result.session, result.tokens) == (3, None, None)
        assert result.output == "outerr"
        assert (await shell(workspace, "true")).output == ""
        assert (await shell(workspace, "pwd")).output == f"{workspace.root}\n"
        assert (await shell(workspace, r"printf '\377x'")).output == "\ufffdx"

    in_workspace(tmp_path, story)


def test_the_same_operation_again_is_the_same_command(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        first = await shell(workspace, "echo once >> log; cat log", op="op-1")
        again = await shell(workspace, "echo once >> log; cat log", op="op-1")
        assert first.output == again.output == "once\n"
        assert first.chunk == again.chunk
        assert (await shell(workspace, "cat log", op="op-2")).chunk != first.chunk
        assert workspace.text("log") == "once\n"

    in_workspace(tmp_path, story)


def test_a_long_output_is_shortened_and_kept_whole_beside(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        arguments = {"cmd": "seq 1 1000", "max_output_tokens": 20}
        outcome = await workspace.call("exec_command", json.dumps(arguments))
        whole = "".join(f"{number}\n" for number in range(1, 1001))
        assert outcome.full == whole.encode()
        result = Read(outcome.output)
        assert result.tokens == -(-len(whole) // 4)
        assert result.output.startswith("Total output lines: 1000\n\n1\n2\n3\n")
        assert " tokens truncated…" in result.output
        assert result.output.endswith("999\n1000\n")
        short = await workspace.call("exec_command", json.dumps({"cmd": "seq 1 1000"}))
        assert short.full is None
        assert Read(short.output).output == whole

    in_workspace(tmp_path, story)


def test_workdir(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        root = workspace.root
        (root / "a b" / "sub").mkdir(parents=True)
        granted = workspace.home / "granted"
        granted.mkdir()
        workspace.rule = ResolveRule(roots=[str(root)], read_only_roots=[str(granted)])
        (root / "out").symlink_to(workspace.home)
        for workdir, expected in (
            ("a b", f"{root}/a b"),
            ("a b/../a b/sub", f"{root}/a b/sub"),
            (f"{root}/a b", f"{root}/a b"),
            ("", str(root)),
            (str(granted), str(granted)),
        ):
            assert (await shell(workspace, "pwd", workdir=workdir)).output == f"{expected}\n"
        for workdir in ("..", "/", "/etc", "out", "../granted"):
            outcome = await workspace.call(
                "exec_command", json.dumps({"cmd": "touch ran", "workdir": workdir})
            )
            assert outcome.output == (
                "Invalid workdir. Use a path within the workspace or an explicitly granted path."
            )
            assert outcome.error == "invalid_manifest_path"
        missing = await shell(workspace, "touch ran", workdir="missing")
        assert missing.code not in (0, None)
        assert "missing" in missing.output
        assert not list(root.rglob("ran"))
        workspace.cwd = "a b"
        assert (await shell(workspace, "pwd")).output == f"{root}/a b\n"
        assert (await shell(workspace, "pwd", workdir="sub")).output == f"{root}/a b/sub\n"
        assert (await shell(workspace, "pwd", workdir="..")).output == f"{root}\n"

    in_workspace(tmp_path, story)


def test_environment_and_other_shells(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        text = await exec_command(
            workspace.box,
            workspace.rule,
            str(workspace.root),
            "",
            {"COLOUR": "blue"},
            json.dumps({"cmd": "echo $COLOUR $0"}),
            op="op-1",
        )
        assert Read(text.text).output == "blue sh\n"
        assert (text.exit_code, text.session, text.error) == (0, None, None)
        bash = await shell(workspace, "echo ${BASH_VERSION:+yes}; shopt login_shell", shell="bash")
        assert bash.output.split() == ["yes", "login_shell", "on"]
        plain = await shell(workspace, "shopt login_shell", shell="bash", login=False)
        assert plain.output.split() == ["login_shell", "off"]
        absent = await shell(workspace, "true", shell="no-such-shell")
        assert absent.code == 127
        assert "no-such-shell" in absent.output

    in_workspace(tmp_path, story)


def test_a_command_that_runs_on(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        asking = 'read line; echo "got $line"; exit 3'
        started = await shell(workspace, asking, tty=True, yield_time_ms=0)
        assert started.code is None
        assert started.session is not None
        assert 1000 <= started.session <= 99999

        arguments = json.dumps(
            {"session_id": started.session, "chars": "hello\n", "yield_time_ms": 30_000}
        )
        for _ in range(2):  # asked again, nothing is written again
            outcome = await workspace.call("write_stdin", arguments, op="write-1")
            ended = Read(outcome.output)
            assert (ended.code, ended.session) == (3, None)
            assert ended.output == "hello\r\ngot hello\r\n"

    in_workspace(tmp_path, story)


def test_unknown_sessions_and_closed_input_are_answers(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        outcome = await workspace.call("write_stdin", '{"session_id": 4711}')
        result = Read(outcome.output)
        assert (result.code, outcome.error) == (1, "pty_session_not_found")
        assert result.output == "write_stdin failed: PTY session not found: 4711"
        started = await shell(workspace, "sleep 60", yield_time_ms=0)
        arguments = json.dumps({"session_id": started.session, "chars": "x"})
        outcome = await workspace.call("write_stdin", arguments)
        result = Read(outcome.output)
        assert (result.code, outcome.error) == (1, "stdin_closed")
        assert result.output == (
            "stdin is not available for this process. "
            "Start the command with `tty=true` in `exec_command` before using `write_stdin`."
        )
        await workspace.box.kill_all()

    in_workspace(tmp_path, story)


def test_output_streams_while_the_command_runs(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        seen: list[tuple[str, int, bytes]] = []
        arguments = json.dumps({"cmd": "echo one; echo two >&2; echo three"})
        await workspace.call("exec_command", arguments, on_output=lambda *piece: seen.append(piece))
        assert b"".join(data for _, _, data in seen) == b"one\ntwo\nthree\n"

    in_workspace(tmp_path, story)
