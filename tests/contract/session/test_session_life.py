"""A session's life: made, started, left, resumed here and in another process, lost, deleted."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from contract.sessions import SessionStage, content, refused, said, write

from sandstream.sandbox.errors import (
    ExecTransportError,
    WorkspaceLostError,
    WorkspaceStartError,
)
from sandstream.sandbox.session.sandbox_session_state import SandboxSessionState

RESUMER = """
import asyncio, io, json, sys
from contract.providers import CONTENDERS

async def main():
    contender = next(it for it in CONTENDERS if it.name == sys.argv[1])
    client = contender.client()
    session = await client.resume(client.deserialize_session_state(json.loads(sys.argv[2])))
    async with session:
        result = await session.exec("cat file; echo theirs >> file")
        print(json.dumps([session.bus_name, result.stdout.decode(), result.exit_code]))
    print(json.dumps(client.serialize_session_state(session.state)))

asyncio.run(main())
"""


def test_nothing_is_made_before_the_start(sessions: SessionStage) -> None:
    async def story() -> None:
        client = sessions.client()
        session = sessions.unmade(client)
        assert not await session.running()
        with refused(WorkspaceStartError, "workspace_start_error"):
            await session.exec("true")
        await client.delete(session)  # nothing to delete is no error

    sessions.run(story())


def test_with_a_session(sessions: SessionStage) -> None:
    async def story() -> None:
        client = sessions.client()
        async with await client.create() as session:
            assert await session.running()
            assert session.state.workspace_root_ready
            await write(session, "file", b"mine")
            await session.start()  # starting what is started changes nothing
            assert await content(session, "file") == b"mine"
        assert not await session.running()
        async with session:  # it goes on where it was left
            assert await content(session, "file") == b"mine"
        await client.delete(session)

    sessions.run(story())


def test_an_error_inside_still_leaves_the_session(sessions: SessionStage) -> None:
    async def story() -> None:
        client = sessions.client()
        session = await client.create()
        with pytest.raises(ZeroDivisionError):
            async with session:
                await write(session, "file", b"mine")
                raise ZeroDivisionError
        assert not await session.running()
        async with session:
            assert await content(session, "file") == b"mine"
        await client.delete(session)

    sessions.run(story())


def test_stop_saves_and_keeps_the_sandbox(sessions: SessionStage) -> None:
    async def story() -> None:
        async with sessions.fresh() as session:
            await said(session, "sleep 60 >/dev/null 2>&1 & echo 1 > file")
            await session.stop()
            assert session.state.snapshot_fingerprint
            assert await session.running()
            await said(session, "echo 2 > file")
            await session.shutdown()
            await session.shutdown()
            assert not await session.running()
            await session.start()
            assert await said(session, "cat file") == "2\n"

    sessions.run(story())


def test_resume_goes_on_in_the_live_sandbox(sessions: SessionStage) -> None:
    async def story() -> None:
        client = sessions.client()
        async with sessions.fresh(client) as session:
            await write(session, "file", b"not saved anywhere")
            payload = json.loads(json.dumps(client.serialize_session_state(session.state)))
            state = client.deserialize_session_state(payload)
            assert isinstance(state, client.state_class)
            assert state.sandbox_id == session.sandbox_id
            other = await client.resume(state)
            await other.start()
            assert await content(other, "file") == b"not saved anywhere"
            await write(other, "file", b"changed")
            assert await content(session, "file") == b"changed"

    sessions.run(story())


def test_resume_needs_a_state_of_its_own_kind(sessions: SessionStage) -> None:
    async def story() -> None:
        client = sessions.client()
        session = sessions.unmade(client)
        foreign = SandboxSessionState(
            type="other", snapshot=session.state.snapshot, manifest=session.state.manifest
        )
        with pytest.raises(TypeError, match="SessionState"):
            await client.resume(foreign)

    sessions.run(story())


@pytest.mark.parametrize("left", ["running", "shut down"])
def test_another_process_resumes_it(sessions: SessionStage, left: str) -> None:
    async def story() -> None:
        client = sessions.client()
        async with sessions.fresh(client) as session:
            await write(session, "file", b"mine\n")
            if left == "shut down":
                await session.aclose()
            state = json.dumps(client.serialize_session_state(session.state))
            name = sessions.contender.name
            done = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-c", RESUMER, name, state],
                env=sessions.program_environment(),
                capture_output=True,
                timeout=50,
                check=False,
            )
            assert done.returncode == 0, done.stderr.decode()
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            assert lines[0] == [session.bus_name, "mine\n", 0]
            again = await client.resume(client.deserialize_session_state(lines[1]))
            await again.start()
            assert await content(again, "file") == b"mine\ntheirs\n"

    sessions.run(story())


def test_a_deleted_session_is_gone_for_good(sessions: SessionStage) -> None:
    async def story() -> None:
        client = sessions.client()
        async with sessions.fresh(client) as session:
            assert await client.delete(session) is session
            await client.delete(session)
            assert not await session.running()
            with refused(WorkspaceLostError, "workspace_lost", reason="deleted"):
                await session.exec("true")

    sessions.run(story())


def test_a_state_outlives_its_sandbox(sessions: SessionStage) -> None:
    async def story() -> None:
        client = sessions.client()
        async with sessions.fresh(client) as session:
            await write(session, "file", b"saved")
            await session.stop()
            await write(session, "file", b"not saved")
            await client.delete(session)
            resumed = await client.resume(session.state)
            await resumed.start()
            assert await content(resumed, "file") == b"saved"
            await client.delete(resumed)

    sessions.run(story())


def test_a_lost_box_without_a_checkpoint(sessions: SessionStage) -> None:
    async def story() -> None:
        async with sessions.fresh() as session:
            await write(session, "file", b"mine")
            await sessions.lose(session)
            for _ in range(2):
                with refused(WorkspaceLostError, "workspace_lost"):
                    await session.read("file")

    sessions.run(story())


def test_a_lost_box_comes_back_from_its_last_checkpoint(sessions: SessionStage) -> None:
    async def story() -> None:
        async with sessions.fresh() as session:
            await write(session, "file", b"saved")
            await session.stop()
            await write(session, "file", b"not saved")
            await sessions.lose(session)
            assert await content(session, "file") == b"saved"
            (entry,) = await session.ls(".")
            assert await content(session, entry.path) == b"saved"
            assert await session.same_file("file", f"{session.root}/file")
            assert await said(session, "cat file") == "saved"

    sessions.run(story())


def test_a_command_that_ran_in_a_lost_box_is_not_repeated(sessions: SessionStage) -> None:
    async def story() -> None:
        async with sessions.fresh() as session:
            await session.stop()  # so that it can be restored
            task = asyncio.create_task(session.exec("touch begun; sleep 60"))
            async with asyncio.timeout(30):
                while not (await session.exec("test -e begun")).ok():
                    await asyncio.sleep(0.02)
            await sessions.lose(session)
            with refused(ExecTransportError, "exec_transport_error"):
                await task
            assert await said(session, "ls") == ""

    sessions.run(story())


def test_a_crashed_box_goes_on_with_its_files(sessions: SessionStage) -> None:
    async def story() -> None:
        async with sessions.fresh() as session:
            await write(session, "file", b"mine")
            await sessions.contender.crash(sessions.home, await sessions.key_of(session))
            assert await content(session, "file") == b"mine"
            assert await said(session, "cat file") == "mine"

    sessions.run(story())


def test_a_paused_session_wakes_up_when_it_is_used(sessions: SessionStage) -> None:
    async def story() -> None:
        async with sessions.fresh() as session:
            await write(session, "file", b"mine")
            for act in (
                lambda: session.exec("true"),
                lambda: session.read("file"),
                lambda: session.ls("."),
                session.stop,
                session.running,
                session.start,
            ):
                await session.pause()
                await session.pause()
                assert (await session.remote.record()).state == "paused"
                await act()
                assert await said(session, "cat file") == "mine"
            await session.pause()
            await session.shutdown()
            await session.start()
            assert await said(session, "cat file") == "mine"

    sessions.run(story())


def test_two_sessions_do_not_see_each_other(sessions: SessionStage) -> None:
    async def story() -> None:
        async with sessions.fresh() as one, sessions.fresh() as two:
            await asyncio.gather(write(one, "file", b"one"), write(two, "file", b"two"))
            assert await content(one, "file") == b"one"
            assert await content(two, "file") == b"two"
            await one.exec("sleep 60 & sleep 0")
            await two.pty_terminate_all()
            await sessions.client().delete(one)
            assert await said(two, "cat file") == "two"

    sessions.run(story())


def test_saving_while_commands_and_callers_write(sessions: SessionStage) -> None:
    async def story() -> None:
        async with sessions.fresh() as session:
            script = "i=0; while [ $i -lt 200 ]; do echo $i > n$i; i=$((i+1)); done"
            commands = [session.exec(f"mkdir d{n}; cd d{n}; {script}") for n in range(4)]
            writes = [write(session, f"w{n}", b"x" * 1000) for n in range(20)]
            saves = [session.checkpoint() for _ in range(5)]
            await asyncio.gather(*commands, *writes, *saves)
            tree = await session.checkpoint()
            await sessions.lose(session)
            await session.ls(".")  # a command could not know whether it ran in the lost box
            assert await said(session, "cat d*/n199 | sort -u; ls | wc -l") == "199\n24\n"
            assert session.state.snapshot_fingerprint == tree

    sessions.run(story())
