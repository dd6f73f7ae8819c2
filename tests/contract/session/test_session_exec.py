"""Commands through sessions: shells, timeouts, users, terminals, many at once, big output."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest
from contract.sessions import SessionStage, content, refused, said

from sandstream.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    PtySessionNotFoundError,
    SandboxError,
    SandboxLimitError,
)


def test_results(sessions: SessionStage) -> None:
    async def story() -> None:
        session = await sessions.shared()
        result = await session.exec("echo out; echo err >&2; exit 3")
        assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 3)
        assert not result.ok()
        assert (await session.exec("kill -9 $$")).exit_code == 137
        binary = await session.exec(r"printf '\377\000\n'")
        assert binary.stdout == b"\xff\0\n"

    sessions.run(story())


def test_shells(sessions: SessionStage) -> None:
    async def story() -> None:
        session = await sessions.shared()
        assert await said(session, "echo $((1+1)) | cat") == "2\n"
        words = await session.exec("printf", "%s|", "a b", "$HOME", "'")
        assert words.stdout == b"a b|$HOME|'|", "several arguments are quoted for the shell"
        own = await session.exec("echo $OWN", shell=["env", "OWN=mine", "sh", "-c"])
        assert own.stdout == b"mine\n"
        plain = await session.exec("printf", "%s|", "$HOME", "a b", shell=False)
        assert plain.stdout == b"$HOME|a b|"
        path = await session.exec(Path("/bin/echo"), "hi", shell=False)
        assert path.stdout == b"hi\n"

    sessions.run(story())


def test_what_cannot_be_executed(sessions: SessionStage) -> None:
    async def story() -> None:
        session = await sessions.shared()
        with refused(ExecTransportError, "exec_transport_error"):
            await session.exec("no-such-program", shell=False)
        assert (await session.exec("no-such-program")).exit_code == 127
        with refused(ExecTransportError, "exec_transport_error"):
            await session.exec("true", shell=["no-such-shell", "-c"])
        assert (await session.exec("true")).ok()

    sessions.run(story())


def test_a_timeout(sessions: SessionStage) -> None:
    async def story() -> None:
        session = await sessions.shared()
        with refused(ExecTimeoutError, "exec_timeout", timeout_s=0.3) as caught:
            await session.exec("sleep 60; echo late", timeout=0.3)
        assert caught.value.command == ("sleep 60; echo late",)
        assert caught.value.timeout_s == 0.3
        assert (await session.exec("echo in time", timeout=30)).stdout == b"in time\n"

    sessions.run(story())


def test_commands_start_in_the_root(sessions: SessionStage) -> None:
    async def story() -> None:
        session = await sessions.shared()
        assert await said(session, "pwd -P") == f"{session.root}\n"
        await session.exec("cd /tmp")
        assert await said(session, "pwd -P") == f"{session.root}\n"

    sessions.run(story())


def test_tools_start_where_their_run_works(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        output = await session.run_tool("exec_command", '{"cmd": "pwd -P; echo hi > file"}')
        assert f"{session.root}\n" in output
        output = await session.run_tool("exec_command", '{"cmd": "pwd -P"}', cwd=place)
        assert f"{session.root}/{place}\n" in output
        assert await content(session, "file") == b"hi\n"

    sessions.run(story())


@pytest.mark.needs_no("users")
def test_users_where_there_are_none(sessions: SessionStage) -> None:
    async def story() -> None:
        session = await sessions.shared()
        for act in (
            lambda: session.exec("id", user="somebody"),
            lambda: session.read("x", user="somebody"),
            lambda: session.ls(".", user="somebody"),
            lambda: session.mkdir("x", user="somebody"),
        ):
            with refused(SandboxError, "sandbox_config_invalid", user="somebody"):
                await act()

    sessions.run(story())


def test_twenty_commands_at_once(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        # each waits for all the others
        script = (
            f"cd {place}; touch in-%d; while [ $(ls | wc -l) -lt 20 ]; do sleep 0.02; done; echo %d"
        )
        results = await asyncio.gather(
            *(session.exec(script % (number, number), timeout=40) for number in range(20))
        )
        assert [int(it.stdout) for it in results] == list(range(20))

    sessions.run(story())


def test_much_output(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        script = f"head -c 9000000 /dev/urandom > {place}/big; cat {place}/big; cat {place}/big >&2"
        result = await session.exec(script)
        expected = hashlib.sha256(await content(session, f"{place}/big")).digest()
        assert hashlib.sha256(result.stdout).digest() == expected
        assert hashlib.sha256(result.stderr).digest() == expected

    sessions.run(story())


def test_a_cancelled_caller_does_not_break_the_session(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        task = asyncio.create_task(session.exec(f"touch {place}/begun; sleep 20"))
        async with asyncio.timeout(30):
            while not (await session.exec(f"test -e {place}/begun")).ok():
                await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await session.exec("true")).ok()

    sessions.run(story())


@pytest.mark.needs("pty")
def test_talking_to_a_command(sessions: SessionStage) -> None:
    async def story() -> None:
        session = await sessions.shared()
        assert session.supports_pty()
        started = await session.pty_exec_start("cat", tty=True, yield_time_s=0.25)
        assert started.exit_code is None
        assert started.process_id is not None
        output = b""
        update = await session.pty_write_stdin(session_id=started.process_id, chars="hello\n")
        async with asyncio.timeout(30):
            while output.count(b"hello") < 2:
                output += update.output
                if output.count(b"hello") < 2:
                    update = await session.pty_write_stdin(
                        session_id=started.process_id, chars="\x12", yield_time_s=0.25
                    )
        ended = await session.pty_write_stdin(
            session_id=started.process_id, chars="\x04", yield_time_s=20
        )
        assert (ended.exit_code, ended.process_id) == (0, None)
        with refused(PtySessionNotFoundError, "pty_session_not_found"):
            await session.pty_write_stdin(session_id=started.process_id, chars="x")

    sessions.run(story())


def test_a_command_without_a_terminal_has_no_stdin(sessions: SessionStage) -> None:
    async def story() -> None:
        session = await sessions.shared()
        started = await session.pty_exec_start("sleep 20", yield_time_s=0.25)
        assert started.process_id is not None
        with refused(ExecTransportError, "exec_transport_error"):
            await session.pty_write_stdin(session_id=started.process_id, chars="hello\n")
        await session.pty_terminate_all()
        assert (await session.exec("true")).ok()

    sessions.run(story())


def test_too_many_commands(sessions: SessionStage) -> None:
    async def story() -> None:
        async with sessions.fresh() as session:
            await asyncio.gather(
                *(session.pty_exec_start("sleep 40", yield_time_s=0.25) for _ in range(64))
            )
            with refused(SandboxLimitError, "sandbox_limit"):
                await session.exec("true")
            await session.pty_terminate_all()
            assert (await session.exec("true")).ok()

    sessions.run(story())
