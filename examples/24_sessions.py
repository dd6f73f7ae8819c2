"""A durable session: two turns, a fork from the first one, a rewind.

    python examples/24_sessions.py

`sandstream up` serves this file meanwhile; the session itself is in no process. At the end both
sessions are destroyed.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from offline import model_or_script

from sandstream import Client
from sandstream.sandbox import SandboxAgent
from sandstream.sessions import DurableSession
from sandstream.testing import script_for, text, tool_call

writer = SandboxAgent(name="writer", instructions="Write into story.txt with the shell.")

SCRIPTS = [
    script_for(
        "Begin a story",
        [
            tool_call("exec_command", {"cmd": "echo 'A fox met a crow.' > story.txt"}),
            text("A fox met a crow."),
            tool_call("exec_command", {"cmd": "echo 'They sang.' >> story.txt; cat story.txt"}),
            text("They sang."),
        ],
    )
]


@contextmanager
def serving() -> Iterator[None]:
    """`sandstream up` for this file, in a process of its own, which ends with this one."""
    ours, its = os.pipe()
    command = [sys.executable, "-m", "sandstream.cli", "up", __file__, "--json"]
    command += ["--parent-pipe", str(ours)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[ours]) as up:
        assert up.stdout is not None
        up.stdout.readline()  # it is ready
        try:
            yield
        finally:
            up.terminate()
            os.close(its)


async def main() -> None:
    async with await Client.connect() as client:
        story = await client.sessions.create("writer", title="A story")
        for wish in ("Begin a story.", "Go on."):
            sent = await story.send(wish)
            print(await sent.answer())

        other = await story.fork(turn=1, title="Another way to go on")
        await show(story)
        await show(other)

        info = await story.rewind(1)
        print(f"back at turn {info.turn}, {len(await story.history())} items")
        for session in (other, story):
            await session.destroy()


async def show(session: DurableSession) -> None:
    info = await session.info()
    came = f" (from turn {info.origin.turn})" if info.origin else ""
    print(f"{info.title}{came}: {len(await session.history())} items, {info.activity}")


if __name__ == "__main__":
    with model_or_script(conversations=SCRIPTS), serving():
        asyncio.run(main())
