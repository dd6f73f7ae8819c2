"""The installation of the demo: a private server, real actors as processes, a scripted model, all
in a temporary directory. Nothing of it is left when the demo ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from sandstream_bus.embedded.lease import stop_server
from sandstream_bus.environment import set_variable, unset_variables
from sandstream_bus.wire.sessions import IDLE_S

from sandstream.client import Client
from sandstream.exceptions import UserError
from sandstream.sessions import DurableSession
from sandstream.testing import ScriptedModel
from sandstream.tui.demo.script import BUILD, FIX, NOTE, PUBLISH, REPORT, steps

AGENTS = Path(__file__).with_name("agents.py")
_OURS = ("OPENAI_", "NATS_", "SANDSTREAM_")
_GRACE_S = 10.0


class Demo:
    """The processes and the sessions of the demo.

    Args:
        client: The connection to the private server.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str, *arguments: str) -> None:
        """Start an actor, and wait until it works.

        Args:
            name: Its name here.
            arguments: The arguments of ``sandstream``.
        """
        command = [*_with_us(), sys.executable, "-m", "sandstream.cli", *arguments, "--json"]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._processes[name] = process
        assert process.stdout is not None
        if not await process.stdout.readline():
            _, said = await process.communicate()
            del self._processes[name]
            raise UserError(f"the demo's {name} did not start: {said.decode(errors='replace')}")

    async def kill(self, name: str) -> None:
        """kill -9

        Args:
            name: The name of the process here.
        """
        process = self._processes.pop(name)
        process.kill()
        await process.communicate()

    async def stop(self) -> None:
        """End all sessions with their boxes, then all processes."""
        with contextlib.suppress(TimeoutError, UserError):
            async with asyncio.timeout(_GRACE_S):
                known = await self.client.sessions.list(archived=True)
                await asyncio.gather(*(self._destroy(it.id) for it in known))
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            await process.communicate()

    async def _destroy(self, id: str) -> None:
        session = await self.client.sessions.get(id)
        await session.destroy()
        while (await session.info()).life != "destroyed":
            await asyncio.sleep(0.1)

    # --- scenes --------------------------------------------------------------------------------

    async def play(self) -> None:
        """Give the agents work: finished, at work, asking, asleep, forked, taken over."""
        sessions = self.client.sessions
        fix = await sessions.create("coder", title="Fix the shop", input=FIX)
        await sessions.create("publisher", title="Publish the site", input=PUBLISH)
        await sessions.create("coder", title="Nightly build", input=BUILD)
        await self.client.submit("editor", REPORT, stream=True)
        note = await sessions.create("coder", title="What is left", input=NOTE, idle_s=5)
        await self._take_over(note)
        await _idle(fix)
        await fix.fork(title="Fix the shop, another way")
        while (await note.info()).box != "asleep":
            await asyncio.sleep(0.2)
        await note.configure(idle_s=IDLE_S)  # so that a terminal in it stays

    async def _take_over(self, session: DurableSession) -> None:
        """Kill a harness while the model answers; the other one takes over."""
        await asyncio.sleep(3)
        await self.kill("harness one")
        await self.start("harness three", "actor", "harness")
        await _idle(session)


async def _idle(session: DurableSession) -> None:
    while (await session.info()).active is not None:
        await asyncio.sleep(0.2)


def _with_us() -> list[str]:
    """On Linux, end the processes of the demo if the demo itself is killed."""
    return ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []


@contextlib.asynccontextmanager
async def demo() -> AsyncIterator[Demo]:
    """The installation, until the block ends. The user's own settings do not count in it."""
    with (
        tempfile.TemporaryDirectory(prefix="sandstream-tui-demo-") as home,
        ScriptedModel(steps(), strict=False) as model,
    ):
        unset_variables(_OURS)
        state = Path(home) / "state"
        set_variable("SANDSTREAM_HOME", str(state))
        set_variable("OPENAI_BASE_URL", model.base_url)
        set_variable("SANDSTREAM_SANDBOX_GRACE_S", "10")
        try:
            async with await Client.connect() as client, _started(client) as place:
                yield place
        finally:
            await stop_server(state)  # before its directory is removed


@contextlib.asynccontextmanager
async def _started(client: Client) -> AsyncIterator[Demo]:
    place = Demo(client)
    try:
        await asyncio.gather(
            place.start("harness one", "actor", "harness"),
            place.start("harness two", "actor", "harness"),
            place.start("sessions", "actor", "sessions"),
            place.start("sandboxes", "actor", "sandbox"),
            place.start("agents", "worker", str(AGENTS)),
        )
        yield place
    finally:
        await place.stop()
