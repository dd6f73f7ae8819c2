"""The daemon of the local Daytona server: commands, sessions, terminals and files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from daytona import (
    AsyncDaytona,
    AsyncSandbox,
    DaytonaBadRequestError,
    DaytonaConflictError,
    DaytonaConnectionError,
    DaytonaError,
    DaytonaNotFoundError,
    FileDownloadRequest,
    FileUpload,
    SessionExecuteRequest,
)
from daytona.common.errors import (
    DaytonaCommandAlreadyCompletedError,
    DaytonaFileAccessDeniedError,
    DaytonaFileNotFoundError,
    DaytonaGoneError,
    DaytonaInvalidFilePathError,
    DaytonaProcessExecutionTimeoutError,
    DaytonaSessionEndedError,
)
from daytona.common.pty import PtySize
from vendors.daytona_stories import Stage, box_named


def test_a_command_is_read_by_the_shell(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        found = await box.process.exec("echo out; echo err >&2; pwd; exit 3")
        assert (found.exit_code, found.result) == (3, "out\nerr\n/home/daytona\n")
        found = await box.process.exec("echo before\ncat\necho eaten")
        assert found.result == "before\necho eaten"
        found = await box.process.exec("echo $A; pwd", cwd="/tmp", env={"A": "b c"})
        assert found.result == "b c\n/tmp\n"
        assert (await box.process.exec("mkdir -p sub; cd sub; pwd", cwd=".")).exit_code == 0
        assert (await box.process.exec("pwd", cwd="sub")).result == "/home/daytona/sub\n"
        found = await box.process.exec("pwd", cwd="/missing")
        assert (found.exit_code, "no such file" in found.result) == (-1, True)
        assert (await box.process.exec(r"printf '\200\201a'")).result == "��a"
        assert (await box.process.exec("kill -9 $$")).exit_code == 137
        large = "x" * 200_000
        assert (await box.process.exec(f"echo {large} | wc -c")).result == "200001\n"
        with pytest.raises(DaytonaBadRequestError, match="cannot be empty"):
            await box.process.exec(" ")
        with pytest.raises(DaytonaBadRequestError, match="invalid environment variable name"):
            await box.process.exec("true", env={"A-B": "c"})

    stage.tell(story)


def test_a_command_ends_with_the_last_holder_of_its_output(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        waiting = "(while [ ! -e go ]; do sleep 0.05; done; echo late) & echo early"
        running = asyncio.create_task(box.process.exec(waiting))
        while not stage.calls("POST /toolbox/process/execute"):
            await asyncio.sleep(0.01)
        await box.fs.upload_file(b"", "go")
        assert (await running).result == "early\nlate\n"

    stage.tell(story)


def test_a_timeout_kills_the_group_and_loses_the_output(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        with pytest.raises(DaytonaProcessExecutionTimeoutError) as caught:
            await box.process.exec("echo lost; sleep 599 & sleep 600", timeout=1)
        assert caught.value.status_code == 408
        assert (await box.process.exec("pgrep sleep")).exit_code == 1

    stage.tell(story)


def test_the_environment_of_new_processes_changes(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        assert await box.get_user_home_dir() == "/home/daytona"
        assert await box.get_work_dir() == "/home/daytona"
        await box.update_env({"A": "1", "B": "2"})
        await box.update_env({"C": "3"}, unset=["A"])
        assert (await box.process.exec("echo $A $B $C")).result == "2 3\n"

    stage.tell(story)


async def in_session(
    box: AsyncSandbox, command: str, run_async: bool | None = None
) -> tuple[int | None, str]:
    request = SessionExecuteRequest(command=command, run_async=run_async)
    found = await box.process.execute_session_command("s", request)
    return found.exit_code, found.stdout or ""


def test_a_session_keeps_its_state(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        process = box.process
        await process.create_session("s")
        with pytest.raises(DaytonaConflictError, match="session already exists"):
            await process.create_session("s")
        await in_session(box, "cd /tmp; export A=b")
        assert await in_session(box, "pwd; echo $A; false") == (1, "/tmp\nb\n")
        request = SessionExecuteRequest(command="echo out; echo err >&2; printf last")
        found = await process.execute_session_command("s", request)
        assert (found.stdout, found.stderr) == ("out\nlast\n", "err\n")
        assert found.output is not None and "\x02\x02\x02err\n" in found.output
        assert await in_session(box, "cat") == (0, "")
        session = await process.get_session("s")
        assert [command.exit_code for command in session.commands] == [0, 1, 0, 0]
        assert [it.session_id for it in await process.list_sessions()] == ["s"]
        logs = await process.get_session_command_logs("s", session.commands[2].id)
        assert (logs.stdout, logs.stderr) == ("out\nlast\n", "err\n")
        await process.delete_session("s")
        for missing in (process.get_session("s"), process.delete_session("s")):
            with pytest.raises(DaytonaNotFoundError, match="session not found"):
                await missing

    stage.tell(story)


def test_commands_run_in_the_background_of_a_session(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        process = box.process
        await process.create_session("s")
        request = SessionExecuteRequest(
            command="read a; echo got $a; read b; echo err >&2; sh -c 'exit 5'", run_async=True
        )
        started = await process.execute_session_command("s", request)
        assert started.exit_code is None
        assert (await process.get_session_command("s", started.cmd_id)).exit_code is None
        await process.send_session_command_input("s", started.cmd_id, "one")
        out: list[str] = []
        err: list[str] = []
        following = asyncio.create_task(
            process.get_session_command_logs_async("s", started.cmd_id, out.append, err.append)
        )
        while "got one\n" not in "".join(out):
            await asyncio.sleep(0.01)
        await process.send_session_command_input("s", started.cmd_id, "two")
        await following
        assert ("".join(out), "".join(err)) == ("one\ngot one\ntwo\n", "err\n")
        assert (await process.get_session_command("s", started.cmd_id)).exit_code == 5
        again: list[str] = []
        await process.get_session_command_logs_async("s", started.cmd_id, again.append, err.append)
        assert "".join(again) == "".join(out)
        with pytest.raises(DaytonaCommandAlreadyCompletedError):
            await process.send_session_command_input("s", started.cmd_id, "late")
        quiet = SessionExecuteRequest(command="read a", run_async=True, suppress_input_echo=True)
        started = await process.execute_session_command("s", quiet)
        await process.send_session_command_input("s", started.cmd_id, "secret")
        assert await in_session(box, "echo after") == (0, "after\n")
        assert (await process.get_session_command_logs("s", started.cmd_id)).output == ""

    stage.tell(story)


def test_a_command_can_end_its_session(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        await box.process.create_session("s")
        with pytest.raises(DaytonaSessionEndedError):
            await in_session(box, "echo last words; exit 3")
        with pytest.raises(DaytonaSessionEndedError):
            await in_session(box, "true")
        (command,) = (await box.process.get_session("s")).commands
        assert command.exit_code is None
        logs = await box.process.get_session_command_logs("s", command.id)
        assert logs.stdout == "last words\n"
        await box.process.delete_session("s")

    stage.tell(story)


def test_deleting_a_session_ends_its_processes(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        await box.process.create_session("s")
        await in_session(box, "setsid sleep 601 > /dev/null 2>&1 & sleep 602 &", run_async=True)
        await in_session(box, "sh -c 'setsid sleep 603 > /dev/null 2>&1 &'", run_async=True)
        wanted = "pgrep -f 'sleep 60[123]' | wc -l"
        while (await box.process.exec(wanted)).result.strip() != "3":
            await asyncio.sleep(0.02)
        await box.process.delete_session("s")
        left = await box.process.exec("pgrep -fa '^sleep 60'")
        assert left.result.split()[1:] == ["sleep", "603"]  # its parent had left it

    stage.tell(story)


def test_a_terminal_is_real(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        seen = bytearray()
        terminal = await box.process.create_pty_session(
            "t", seen.extend, cwd="/tmp", envs={"A": "b"}, pty_size=PtySize(rows=30, cols=100)
        )
        with pytest.raises(DaytonaConflictError):
            await box.process.create_pty_session("t", seen.extend)
        await terminal.send_input("stty size; echo $A-$PWD; test -t 0 && echo yes\n")
        await arrived(seen, b"\r\nyes\r\n")
        assert b"30 100\r\nb-/tmp\r\n" in seen
        info = await terminal.resize(PtySize(rows=40, cols=120))
        assert (info.rows, info.cols, info.active) == (40, 120, True)
        await terminal.send_input("stty size\n")
        await arrived(seen, b"40 120\r\n")
        assert [it.id for it in await box.process.list_pty_sessions()] == ["t"]
        more = bytearray()
        second = await box.process.connect_pty_session("t", more.extend)
        await second.send_input(b"printf '\\001\\377'; echo\n")
        await arrived(more, b"\x01\xff\r\n")
        await arrived(seen, b"\x01\xff\r\n")
        await second.disconnect()
        await terminal.send_input("exit 9\n")
        result = await terminal.wait()
        assert (result.exit_code, result.error) == (9, "non-zero exit")
        assert await box.process.list_pty_sessions() == []

    stage.tell(story)


async def arrived(seen: bytearray, wanted: bytes) -> None:
    while wanted not in seen:
        await asyncio.sleep(0.01)


def test_a_terminal_is_killed(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        seen = bytearray()
        terminal = await box.process.create_pty_session("t", seen.extend)
        await terminal.send_input("sleep 600\n")
        await arrived(seen, b"sleep 600\r\n")
        await terminal.kill()
        result = await terminal.wait()
        assert (result.exit_code, result.error) == (137, "SIGKILL")
        with pytest.raises(DaytonaNotFoundError):
            await box.process.get_pty_session_info("t")
        with pytest.raises(DaytonaGoneError):
            await box.process.resize_pty_session("t", PtySize(rows=1, cols=1))
        with pytest.raises(DaytonaConnectionError, match="PTY session t not found"):
            await box.process.connect_pty_session("t", seen.extend)
        with pytest.raises(DaytonaError):
            await box.process.create_pty_session("bad", seen.extend, cwd="/missing")
        with pytest.raises(DaytonaBadRequestError):
            await box.process.create_pty_session(
                "huge", seen.extend, pty_size=PtySize(rows=24, cols=2000)
            )

    stage.tell(story)


def test_a_stop_cuts_terminals(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        terminal = await box.process.create_pty_session("t", bytearray().extend)
        await box.stop()
        assert (await terminal.wait()).exit_code is None

    stage.tell(story)


def test_files_go_in_and_out(stage: Stage, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4000
    local = tmp_path / "local"
    local.write_bytes(content)

    async def chunks() -> AsyncIterator[bytes]:
        yield b"part "
        yield b"by part"

    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        fs = box.fs
        await fs.upload_file(content, "new/folders/binary")
        await fs.upload_files(
            [FileUpload(str(local), "/tmp/local"), FileUpload(b"", 'empty ü "q"')]
        )
        await fs.upload_file_stream(chunks(), "streamed")
        assert await fs.download_file("new/folders/binary") == content
        assert await fs.download_file("streamed") == b"part by part"
        assert await fs.download_file('empty ü "q"') == b""
        await fs.download_file("/tmp/local", str(tmp_path / "back"))
        assert (tmp_path / "back").read_bytes() == content
        stream = await fs.download_file_stream("new/folders/binary")
        assert b"".join([chunk async for chunk in stream]) == content
        with pytest.raises(DaytonaFileNotFoundError):
            await fs.download_file("missing")
        with pytest.raises(DaytonaInvalidFilePathError):
            await fs.download_file("new")
        found = await fs.download_files(
            [FileDownloadRequest("missing"), FileDownloadRequest("streamed")]
        )
        assert [it.result for it in found] == [None, b"part by part"]
        with pytest.raises(DaytonaError, match="permission denied") as caught:
            await fs.upload_file(b"x", "/etc/passwd")
        assert caught.value.status_code == 400
        assert (await box.process.exec("cat streamed; id -un")).result == "part by partdaytona\n"

    stage.tell(story)


def test_files_are_looked_at_and_changed(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        fs = box.fs
        await fs.create_folder("a/b", "750")
        await fs.upload_file(b"12345", "a/b/file")
        await box.process.exec("ln -s b/file a/link; ln -s nowhere a/broken; mkfifo a/pipe")
        info = await fs.get_file_info("a/b/file")
        assert (info.name, info.size, info.is_dir) == ("file", 5, False)
        assert (info.permissions, info.mode, info.owner) == ("0644", "-rw-r--r--", "1000")
        assert (await fs.get_file_info("a/b")).permissions == "0750"
        assert (await fs.get_file_info("/tmp")).mode == "dtrwxrwxrwx"
        assert [(it.name, it.is_dir) for it in await fs.list_files("a")] == [
            ("b", True),
            ("link", False),
            ("pipe", False),
        ]
        deep = await fs.list_files("a", depth=2)
        assert "/home/daytona/a/b/file" in [it.path for it in deep]
        await fs.set_file_permissions("a/b/file", mode="600")
        assert (await fs.get_file_info("a/b/file")).permissions == "0600"
        await fs.move_files("a/b/file", "a/moved")
        with pytest.raises(DaytonaConflictError, match="destination already exists"):
            await fs.move_files("a/moved", "a/pipe")
        with pytest.raises(DaytonaNotFoundError):
            await fs.move_files("a/moved", "no/where")
        with pytest.raises(DaytonaBadRequestError, match="without recursive flag"):
            await fs.delete_file("a")
        with pytest.raises(DaytonaFileAccessDeniedError):
            await fs.delete_file("/usr/bin/env")
        with pytest.raises(DaytonaFileAccessDeniedError):
            await fs.create_folder("/usr/share/new", "755")
        await fs.delete_file("a/moved")
        await fs.delete_file("a", recursive=True)
        for missing in (fs.get_file_info("a"), fs.delete_file("a"), fs.list_files("a")):
            with pytest.raises(DaytonaFileNotFoundError):
                await missing

    stage.tell(story)


def test_a_signed_link_needs_no_key(stage: Stage) -> None:
    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        await box.fs.upload_file(b"linked", "file")
        url = await box.download_url("file")
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert await answer.read() == b"linked"
        url = await box.upload_url("other")
        form = aiohttp.FormData()
        form.add_field("file", b"sent", filename="other")
        async with aiohttp.ClientSession() as session, session.post(url, data=form) as answer:
            assert answer.status == 200
        assert await box.fs.download_file("other") == b"sent"

    stage.tell(story)


def test_a_box_may_have_no_python(stage: Stage) -> None:
    stage.vendor.configure(python=False, extra_dirs=["/workspace"])

    async def story(client: AsyncDaytona) -> None:
        box = await box_named(client)
        assert (await box.process.exec("command -v python3 python")).exit_code != 0
        assert (await box.process.exec("echo x > /workspace/file")).exit_code == 0

    stage.tell(story)
