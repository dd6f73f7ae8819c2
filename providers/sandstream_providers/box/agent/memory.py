"""A limit of memory where the kernel gives none: look twice a second, kill the biggest command."""

from __future__ import annotations

import os

from sandstream_providers.box.agent import tree
from sandstream_providers.box.agent.commands import Commands
from sandstream_providers.box.agent.loop import Loop

LOOK_EVERY_S = 0.5


class MemoryWatch:
    """Looks for as long as there are processes of commands."""

    def __init__(self, loop: Loop, commands: Commands, limit: int) -> None:
        self._loop = loop
        self._commands = commands
        self._limit = limit
        self._looking = False

    def look_on(self) -> None:
        """Something was started."""
        if not self._looking:
            self._looking = True
            self._loop.after(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        processes = tree.table()
        shares = []
        total = 0
        counted: set[int] = set()
        for command, family in self._commands.families():
            members = family.members(processes, self._commands.leaders)
            share = sum(process.resident for process in members)
            if members:
                shares.append((share, command))
            total += sum(process.resident for process in members if process.pid not in counted)
            counted.update(process.pid for process in members)
        if os.getpid() == 1:
            total = sum(process.resident for process in processes)
        if total > self._limit and shares:
            self._commands.end(max(shares, key=lambda pair: pair[0])[1], "memory")
        self._looking = False
        if shares:
            self.look_on()
