"""Running scripts in a box: each in a shell of its own, again if a connection broke."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sandstream_providers.interface import BoxGone
from sandstream_providers.shell.basics import Basics, BoxFacts
from sandstream_providers.shell.channel import Answer, Shell

TRIES = 20
"""How often in a row a connection may break during one script."""
PAUSE_S = 0.05
KEPT = 4
"""Shells that are kept open for the next scripts."""

OpenShell = Callable[[], Awaitable[Shell]]


class Scripts:
    """Shells are opened when they are needed: a script that waits must not hold up another one."""

    def __init__(self, key: str, open_shell: OpenShell, basics: Basics) -> None:
        self._key = key
        self._open_shell = open_shell
        self.basics = basics
        self._facts: BoxFacts | None = None
        self._probing = asyncio.Lock()
        self._idle: list[Shell] = []
        self._running: set[asyncio.Task[Answer]] = set()
        self.closed = False

    @property
    def is_running(self) -> bool:
        return bool(self._running)

    async def close(self) -> None:
        """End what is under way, and release the shells. What scripts have started lives on."""
        self.closed = True
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        while self._idle:
            await self._idle.pop().close()

    async def facts(self) -> BoxFacts:
        """What the box is like, asked once. Makes the directories of the records."""
        async with self._probing:
            if self._facts is None:
                self._facts = self.basics.facts(await self.run(self.basics.probe))
            return self._facts

    async def run(self, script: str, data: bytes = b"", *, timeout_s: float = 60.0) -> Answer:
        """Raises BoxGone; every script may be run again."""
        broken: OSError | None = None
        for _ in range(TRIES):
            if self.closed:
                break
            task = asyncio.create_task(self._run_once(script, data, timeout_s))
            self._running.add(task)
            try:
                return await task
            except OSError as error:
                broken = error
            except asyncio.CancelledError:
                caller = asyncio.current_task()
                if not self.closed or (caller is not None and caller.cancelling()):
                    raise
                break  # it was let go of in the middle
            finally:
                self._running.discard(task)
            await asyncio.sleep(PAUSE_S)
        if self.closed:
            raise BoxGone(f"box {self._key} was let go of: get it from its provider again")
        raise BoxGone(
            f"the connection to box {self._key} broke {TRIES} times in a row: {broken}"
        ) from broken

    async def _run_once(self, script: str, data: bytes, timeout_s: float) -> Answer:
        shell = self._idle.pop() if self._idle else await self._open_shell()
        try:
            answer = await shell.run(script, data, timeout_s=timeout_s)
        except BaseException:
            await shell.close()  # what it is doing is unknown
            raise
        if self.closed or len(self._idle) >= KEPT:
            await shell.close()
        else:
            self._idle.append(shell)
        return answer
