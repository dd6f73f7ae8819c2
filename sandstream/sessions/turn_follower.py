"""Following one turn: the stored events of its run and of runs below it, then what happens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.errors import BusUnavailable
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    LiveEvent,
    RunWaiting,
)
from sandstream_bus.wire.sandboxes import LiveOutput
from sandstream_bus.wire.subjects import RunId

from sandstream._inspect.live_output import OutputText, heard
from sandstream._inspect.reader import RunReader
from sandstream._inspect.tree_follower import TreeEvent, TreeFollower
from sandstream.sessions.events import (
    CommandOutput,
    DeltaKind,
    RunStep,
    SessionEvent,
    TextDelta,
    TurnBegan,
)

_AGAIN_S = 0.5
_ABOUT_PEOPLE = (ApprovalRequested, ApprovalDecided, RunWaiting)
"""Events after which the session may need a person, or no longer."""
_KINDS: dict[str, DeltaKind] = {
    "response.output_text.delta": "text",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "arguments",
}


class _Piece(msgspec.Struct):
    """The part of a model's stream event that followers get."""

    type: str
    delta: str = ""


_decode = msgspec.json.Decoder(_Piece).decode


class TurnFollower:
    """Tells one turn, once."""

    def __init__(
        self,
        bus: Bus,
        number: int,
        run: str,
        *,
        tell: Callable[[SessionEvent], None],
        deltas: bool,
    ) -> None:
        self._bus = bus
        self._number = number
        self._run = run
        self._tell = tell
        self._deltas = deltas
        self.on_question: Callable[[], None] = lambda: None
        """Called when people are asked something, or have answered."""
        self._readers: dict[str, RunReader] = {}
        self._last: dict[str, int] = {}
        """The newest event of each run that was told."""
        self._outputs: dict[tuple[str, str], OutputText] = {}

    async def has_run(self) -> bool:
        """Has the run of the turn begun?"""
        return await self._bus.log.last_sequence(RunId(self._run)) > 0

    async def past(self) -> None:
        """Tell a turn that is over."""
        self._tell(TurnBegan(turn=self._number, run=self._run, is_past=True))
        await self._go_through(deltas=False)

    async def live(self) -> None:
        """Tell a turn at work, up to the end of its run."""
        self._tell(TurnBegan(turn=self._number, run=self._run))
        await self._go_through(deltas=self._deltas)

    async def _go_through(self, *, deltas: bool) -> None:
        while True:
            try:
                await self._once(deltas)
            except (BusUnavailable, TimeoutError):  # an outage that is longer than one read waits
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    async def _once(self, deltas: bool) -> None:
        async with contextlib.AsyncExitStack() as stack:
            known: set[str] = set()
            following = TreeFollower(self._bus, self._run, deltas=deltas)
            events = await stack.enter_async_context(contextlib.aclosing(following.events()))
            if deltas:
                await self._listen(stack, known, self._run)
            async for told in events:
                if deltas:
                    await self._listen(stack, known, told.member.run)
                self._event(told)

    async def _listen(self, stack: contextlib.AsyncExitStack, known: set[str], run: str) -> None:
        """Hear the output of a run's commands, from now on."""
        if run not in known:
            known.add(run)
            await stack.enter_async_context(heard(self._bus, run, partial(self._output, run)))

    def _event(self, told: TreeEvent) -> None:
        member, event = told
        if isinstance(event, LiveEvent):
            self._delta(member.run, event)
            return
        if event.sequence <= self._last.get(member.run, 0):
            return  # told before an outage
        self._last[member.run] = event.sequence
        row = self._readers.setdefault(member.run, RunReader(member.run)).feed(event)
        self._tell(RunStep(turn=self._number, row=row, depth=member.depth, name=member.name))
        if isinstance(event.event, _ABOUT_PEOPLE):
            self.on_question()

    def _delta(self, run: str, event: LiveEvent) -> None:
        try:
            piece = _decode(event.event)
        except msgspec.DecodeError:
            return
        kind = _KINDS.get(piece.type)
        if kind is None or not piece.delta:
            return
        self._tell(
            TextDelta(
                turn=self._number,
                run=run,
                model_turn=event.turn,
                attempt=event.attempt,
                number=event.n,
                text=piece.delta,
                kind=kind,
            )
        )

    def _output(self, run: str, piece: LiveOutput) -> None:
        text = self._outputs.setdefault((run, piece.call), OutputText()).take(piece)
        if text:
            self._tell(
                CommandOutput(
                    turn=self._number, run=run, call=piece.call, stream=piece.stream, text=text
                )
            )
