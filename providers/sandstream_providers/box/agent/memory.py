"""A limit of memory where the kernel gives none: look twice a second, kill the biggest command."""

from __future__ import annotations

from sandstream_providers.box.agent.commands import Commands
from sandstream_providers.box.agent.loop import Loop

LOOK_EVERY_S = 0.5


class MemoryWatch:
    """Looks for as long as there are processes."""

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
        shares = self._commands.shares()
        self._looking = False
        if not shares:
            return
        ours = [share for share in shares if share[1]]
        if sum(size for size, _ in shares) > self._limit and ours:
            self._commands.end_for_memory(max(ours)[1])
        self.look_on()
