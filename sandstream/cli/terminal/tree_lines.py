"""The events of a run tree as lines; those of a child run are indented and carry its name."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from sandstream_bus.bus import Bus
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import CallFinished, CallRequested

from sandstream._inspect.live_output import heard
from sandstream._inspect.tree_follower import Member, TreeEvent
from sandstream.cli.terminal.command_output import LiveCommands
from sandstream.cli.terminal.event_lines import EventLines
from sandstream.cli.terminal.render import Screen


class _Told(NamedTuple):
    """The state of the lines of one run."""

    lines: EventLines
    commands: LiveCommands


class LiveOutputs(NamedTuple):
    """The source of live output of commands, and what ends the subscriptions."""

    bus: Bus
    stack: contextlib.AsyncExitStack


class TreeTeller:
    """Feed it every event of a tree. ``live``: show what commands in sandboxes say meanwhile."""

    def __init__(self, screen: Screen, live: LiveOutputs | None, *, hints: bool = True) -> None:
        self._screen = screen
        self._live = live
        self._told: dict[str, _Told] = {}
        self._hinted: set[tuple[str, str]] = set()
        self._hints = hints

    async def tell(self, told: TreeEvent, *, is_shown: bool) -> None:
        """Write the lines of one event; those that are not shown are only taken in."""
        event = told.event
        assert isinstance(event, LogEvent)
        known = self._told.get(told.member.run) or await self._meet(told.member)
        if not is_shown:
            known.lines.skip(event)
            return
        was_shown = isinstance(event.event, CallFinished) and known.commands.finished(event.event)
        for line in known.lines.render(event, is_output_shown=was_shown):
            self._screen.line(line)
        if isinstance(event.event, CallRequested):
            known.commands.requested(event.event)

    async def _meet(self, member: Member) -> _Told:
        lines = EventLines(
            self._screen,
            depth=member.depth,
            name=member.name,
            hinted=self._hinted,
            hints=self._hints,
        )
        known = _Told(lines, LiveCommands(self._screen))
        self._told[member.run] = known
        if self._live is not None:
            heard_run = heard(self._live.bus, member.run, known.commands.take)
            await self._live.stack.enter_async_context(heard_run)
        return known
