"""Each operation happens once, whoever asks how often: lost connections, killed processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from providers.box.agent_process import answer, running_agent, shell
from sandstream_providers.interface import BoxGone, ExecSpec, FileWrite


def test_a_command_starts_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            spec = shell(f"echo x >> {agent.root}/count; echo out; exit 5")
            box, other = agent.box(), agent.box()
            outputs = await asyncio.gather(*(b.run("op", spec) for b in (box, other, box)))
            assert outputs[0].exit_code == 5
            assert all(output == outputs[0] for output in outputs)
            assert await box.run("op", spec) == outputs[0]
            assert (agent.root / "count").read_text() == "x\n"

    asyncio.run(main())


def test_odd_operation_ids(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            for op in ("../up", "a/b", "x" * 300, ".", "ü"):
                assert (
                    await box.run(op, shell('printf %s "$SANDSTREAM_OP"'))
                ).stdout == op.encode()
            assert sorted(entry.name for entry in os.scandir(tmp_path)) == [
                "agent.pyz",
                "agent.sock",
                "jobs",
                "workspace",
            ]

    asyncio.run(main())


def test_an_answer_begins_where_the_one_before_ended(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            spec = shell("echo a; read x; echo b; read x; echo c", keep_stdin=True)
            first = await answer(lambda: box.run("run", spec, wait_s=0), b"a\n")
            session = first.session
            await answer(lambda: box.interact("two", session, b"\n", wait_s=0), b"b\n")
            third = await box.interact("three", first.session, b"\n", wait_s=30)
            assert third.stdout == b"c\n"
            again = await box.interact("two", first.session, b"\n", wait_s=0)
            assert again.stdout == b"b\nc\n"
            assert again.exit_code == 0

    asyncio.run(main())


def test_a_broken_connection_only_breaks_the_waiting(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            fifo = agent.root / "fifo"
            os.mkfifo(fifo)
            seen: list[bytes] = []
            came = asyncio.Event()

            def on_output(_stream: str, _offset: int, data: bytes) -> None:
                seen.append(data)
                came.set()

            spec = shell(f"echo x >> {agent.root}/count; echo before; cat {fifo}")
            running = asyncio.create_task(box.run("op", spec, on_output=on_output))
            await came.wait()
            assert box._link is not None
            box._link._writer.transport.abort()
            await asyncio.to_thread(fifo.write_bytes, b"after\n")
            output = await running
            assert output.stdout == b"before\nafter\n"
            assert b"".join(seen) == b"before\nafter\n"
            assert (agent.root / "count").read_text() == "x\n"

    asyncio.run(main())


CLIENT = """
import asyncio, sys
from sandstream_providers.box.client import AgentBox
from sandstream_providers.interface import ExecSpec
async def main():
    box = AgentBox("b", "/", lambda: asyncio.open_unix_connection("agent.sock"), {})
    spec = ExecSpec(argv=["sh", "-c", sys.argv[1]], cwd="/", keep_stdin=True)
    await box.run("op", spec, on_output=lambda *_: print("came", flush=True))
asyncio.run(main())
"""


def test_a_killed_client_is_followed_by_another(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            await box.sessions()
            script = f"echo x >> {agent.root}/count; echo before; read x; echo after"
            client = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CLIENT, script, cwd=tmp_path, stdout=subprocess.PIPE
            )
            assert client.stdout is not None
            assert await client.stdout.readline() == b"came\n"
            client.kill()
            await client.wait()
            spec = shell(script, keep_stdin=True)
            found = await box.run("op", spec, wait_s=0)
            assert (found.state, found.stdout) == ("running", b"before\n")
            output = await box.interact("go", found.session, b"\n", wait_s=30)
            assert (output.exit_code, output.stdout) == (0, b"after\n")
            assert (agent.root / "count").read_text() == "x\n"

    asyncio.run(main())


def test_a_cancelled_wait_leaves_the_command(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            spec = shell("read x; echo done", keep_stdin=True)
            begun = await box.run("op", spec, wait_s=0)
            waiting = asyncio.create_task(box.run("op", spec))
            await asyncio.sleep(0)
            waiting.cancel()
            assert await asyncio.gather(waiting, return_exceptions=True)
            output = await box.interact("go", begun.session, b"\n", wait_s=30)
            assert output.stdout == b"done\n"

    asyncio.run(main())


def test_after_the_agent_was_killed(tmp_path: Path) -> None:
    """What had ended is still known; what had not is lost, never started again, and dead."""

    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            spec = shell(f"echo x >> {agent.root}/count; echo hello; echo oops >&2; exit 6")
            ended = await box.run("ended", spec)
            endless = shell("echo some; exec sleep 4567")
            came = asyncio.Event()
            running = asyncio.create_task(
                box.run("endless", endless, on_output=lambda *_: came.set())
            )
            await came.wait()
            agent.kill()
            with pytest.raises(BoxGone):
                await running
            agent.start()
            box = agent.box()
            assert await box.run("ended", spec) == ended
            lost = await box.run("endless", endless)
            assert (lost.state, lost.exit_code, lost.stdout) == ("lost", None, b"some\n")
            assert (await box.interact("i", lost.session, b"", wait_s=1)).state == "lost"
            look = await box.run("look", shell("pgrep -x -f 'sleep 4567'"))
            assert look.stdout == b""
            assert (agent.root / "count").read_text() == "x\n"

    asyncio.run(main())


def test_file_changes_happen_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box, rule = agent.box(), agent.rule
            path = f"{agent.root}/file"
            await box.change("write", [FileWrite(path=path, data=b"1", exclusive=True)], rule)
            await box.change("write", [FileWrite(path=path, data=b"1", exclusive=True)], rule)
            await box.append("add", path, b"2", rule, at=1)
            await box.append("add-2", path, b"3", rule, at=2)
            await box.append("add", path, b"2", rule, at=1)
            assert await box.read(path, rule) == b"123"
            await box.move("move", path, path + "2", rule)
            await agent.box().move("move", path, path + "2", rule)
            await box.remove("remove", path + "2", rule)
            await box.remove("remove", path + "2", rule)
            await box.make_dir("make", path, rule)
            await box.make_dir("make", path, rule)

    asyncio.run(main())


def test_nobody_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            await box.sessions()
            agent.kill()
            with pytest.raises(BoxGone, match="does not answer"):
                await box.run("op", ExecSpec(argv=["true"], cwd="/"))
            agent.socket_path.unlink()
            with pytest.raises(BoxGone):
                await agent.box().sessions()
            await box.close()
            with pytest.raises(BoxGone, match="let go"):
                await box.sessions()

    asyncio.run(main())
