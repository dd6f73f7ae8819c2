"""Child processes of ``up``: replicas of actors, restarted when they die, never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

from sandstream.cli.services.launch import GRACE_S
from sandstream.cli.session import say

_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 30.0
_LONG_LIFE_S = 10.0
"""A process that ran longer than this restarts with the first delay."""


class Replicas:
    """Keeps ``number`` processes of ``sandstream actor KIND`` alive. Use it with ``async with``.

    All of them hold the reading end of one pipe whose writing end is here: when this process is
    gone, by kill -9 too, they notice and stop.
    """

    def __init__(self, number: int, kind: str, *arguments: str) -> None:
        self._number = number
        self._kind = kind
        self._arguments = arguments
        self._keepers: list[asyncio.Task[None]] = []
        self._reading, self._writing = os.pipe()

    async def __aenter__(self) -> Replicas:
        self._keepers = [asyncio.ensure_future(self._keep()) for _ in range(self._number)]
        return self

    async def __aexit__(self, *exc: object) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        os.close(self._reading)
        os.close(self._writing)

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        delay_s = _FIRST_DELAY_S
        while True:
            began = loop.time()
            code = await self._run_one()
            if loop.time() - began > _LONG_LIFE_S:
                delay_s = _FIRST_DELAY_S
            say(f"a {self._kind} replica ended ({_how(code)}); again in {delay_s:g} s")
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _LONGEST_DELAY_S)

    async def _run_one(self) -> int:
        """One process from its start to its end. A cancellation stops it, by force if necessary."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sandstream.cli", "actor", self._kind),
            *(*self._arguments, "--parent-pipe", str(self._reading)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            pass_fds=[self._reading],
            start_new_session=True,  # the terminal's Ctrl-C is for the parent, which passes it on
        )
        try:
            return await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(GRACE_S + 2):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
