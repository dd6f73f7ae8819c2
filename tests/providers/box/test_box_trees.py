"""Ending commands with all that they started, also what hides."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from providers.box.agent_process import alive, running_agent, shell, unprivileged
from sandstream_providers.box.client import AgentBox
from sandstream_providers.interface import ExecSpec, LimitReached

STUBBORN = "trap '' TERM HUP INT; "
HIDING = (
    "import os,signal,sys,time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "for _ in range(2):\n"
    "    if os.fork(): os._exit(0)\n"
    "    os.setsid()\n"
    "open(sys.argv[1], 'w').write(str(os.getpid()))\n"
    "time.sleep(1000)\n"
)


async def start_hiding(box: AgentBox, root: Path, op: str) -> int:
    """A grandchild in a session of its own that ignores being asked."""
    file = root / f"{op}.pid"
    script = (
        f'python3 -c "{HIDING}" {file}; while ! test -s {file}; do sleep 0.01; done; echo ready'
    )
    ready = asyncio.Event()
    spec = shell(f"{STUBBORN}{script}; sleep 1000", timeout_s=None)
    asyncio_task = asyncio.create_task(box.run(op, spec, on_output=lambda *_: ready.set()))
    await ready.wait()
    asyncio_task.cancel()
    pid = int(file.read_text())
    assert alive(pid)
    return pid


def test_kill_reaches_what_detached_itself(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            pid = await start_hiding(box, agent.root, "op")
            other = await start_hiding(box, agent.root, "other")
            await box.kill("op")
            assert not alive(pid)
            assert alive(other)
            output = await box.run("op", shell("true"))
            assert (output.state, output.killed, output.exit_code) == ("exited", "cancelled", 137)
            await box.kill("op")
            await box.kill("unknown")
            await box.kill_all()
            assert not alive(other)

    asyncio.run(main())


def test_a_timeout_ends_all_whoever_watches(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            file = agent.root / "pid"
            script = f'{STUBBORN}python3 -c "{HIDING}" {file}; echo said; sleep 1000'
            output = await box.run("op", shell(script, timeout_s=2.0))
            assert (output.state, output.killed, output.exit_code) == ("exited", "timeout", 137)
            assert output.stdout == b"said\n"
            assert not alive(int(file.read_text()))

    asyncio.run(main())


def test_a_command_that_obeys_ends_in_its_own_way(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path, wall_s=1.0) as agent:
            script = "trap 'echo bye; exit 9' TERM; while :; do sleep 0.02; done"
            output = await agent.box().run("op", shell(script, timeout_s=50))
            assert (output.killed, output.exit_code, output.stdout) == ("timeout", 9, b"bye\n")

    asyncio.run(main())


def test_the_biggest_command_is_killed_when_memory_is_short(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path, memory_bytes=200_000_000) as agent:
            box = agent.box()
            small = await box.run("small", shell("sleep 1000"), wait_s=0)
            hog = "import time; x = bytearray(300_000_000); time.sleep(1000)"
            output = await box.run("big", ExecSpec(argv=["python3", "-c", hog], cwd="/"))
            assert (output.state, output.killed) == ("exited", "memory")
            assert (await box.interact("i", small.session, b"", wait_s=0)).state == "running"

    asyncio.run(main())


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_a_fork_bomb_does_not_take_the_agent_along(tmp_path: Path) -> None:
    config = unprivileged(tmp_path, "--nproc=60:60")

    async def main() -> None:
        async with running_agent(tmp_path, **config) as agent:
            box = agent.box()
            bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass\n"
            spec = ExecSpec(argv=["/usr/bin/python3", "-c", bomb], cwd="/", timeout_s=2.5)
            running = asyncio.create_task(box.run("bomb", spec))
            refused = False
            number = 0
            while not running.done() and not refused:
                number += 1
                try:
                    await box.run(f"try-{number}", shell("sleep 0.01"))
                except LimitReached:
                    refused = True
            assert refused
            await box.change("c", [], agent.rule)
            output = await running
            assert output.killed == "timeout"
            assert (await box.run("after", shell("echo lives"))).stdout == b"lives\n"

    asyncio.run(main())


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to make a process table")
def test_with_its_own_process_table_it_ends_all_there_is(tmp_path: Path) -> None:
    async def main() -> None:
        prefix = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        config = {"prefix": prefix, "stop_with": signal.SIGKILL, "memory_bytes": 300_000_000}
        async with running_agent(tmp_path, **config) as agent:
            box = agent.box()
            # By name: counting all would count the counters, as many as have started by then.
            sleepers = "cat /proc/[0-9]*/comm 2>/dev/null | grep -cx sleep"
            hidden = "env -i setsid sh -c 'exec sleep 1000' >/dev/null 2>&1 &"
            until = f"until [ $({sleepers}) = 1 ]; do :; done"
            assert (await box.run("op", shell(f"{hidden} {until}"))).exit_code == 0
            assert (await box.run("one", shell(sleepers))).stdout == b"1\n"
            await box.kill_all()
            assert (await box.run("two", shell(sleepers))).stdout == b"0\n"
            hog = "import time; x = bytearray(400_000_000); time.sleep(1000)"
            output = await box.run("big", ExecSpec(argv=["python3", "-c", hog], cwd="/"))
            assert output.killed == "memory"

    asyncio.run(main())
