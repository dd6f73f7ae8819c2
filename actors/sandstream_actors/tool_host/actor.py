"""The tool host actor: runs the user's own code in the process that has it.

Every call has an id. A call that may have been delivered before is looked up first: if it has a
result, that result counts. At-least-once calls run again; an at-most-once call that was started and
has no result is reported as unknown, never repeated. The host handles messages and outcomes; its
:class:`Callables` run the calls.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import Protocol

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import Drop, UndecodableMessage
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.wire.attempts import process_name
from sandstream_bus.wire.headers import TRACEPARENT
from sandstream_bus.wire.messages import (
    CallFinished,
    CallRequested,
    CallStarted,
    ErrorInfo,
    Message,
    ModelAnswered,
)
from sandstream_bus.wire.subjects import ANY, RunId, check_token
from sandstream_bus.wire.trace_context import working_on

from sandstream_actors.base import Actor, failed_call
from sandstream_actors.run.cancellations import RunCancelled, is_being_cancelled
from sandstream_actors.run.headers import answering
from sandstream_actors.run.retry import attempt_of, is_answered
from sandstream_actors.run.state import RunState
from sandstream_actors.run.state_cache import StateCache, States

logger = logging.getLogger(__name__)

UNKNOWN_OUTCOME = (
    "It is unknown whether this call took effect: the process that ran it was lost. "
    "It was not repeated."
)


class TakenCall(CallRequested, frozen=True, kw_only=True, tag="call.requested"):
    """A request to a tool host, with data of its delivery."""

    again: bool = False
    """It may have been started before."""
    sequence: int = 0
    """Where the request is in the log."""


class Callables(Protocol):
    """The user's code behind the calls of a pool."""

    async def admit(self, run: RunId, states: States) -> None:
        """Return if the run's code is available here; raise :class:`Retry` if it has to be waited
        for.
        """
        ...

    async def invoke(
        self, run: RunId, call: TakenCall, states: States
    ) -> CallFinished | ModelAnswered:
        """Run the call. Errors of the user's code become outcomes; an exception from here is our
        bug.
        """
        ...


class ToolHost(Actor):
    """One replica of one pool's tool host."""

    hears_cancellations = True

    def __init__(
        self,
        bus: Bus,
        callables: Callables,
        *,
        pool: str,
        start_sequence: int | None = None,
        inactive_s: float | None = None,
        max_in_flight: int = 256,
    ) -> None:
        super().__init__("tools", bus=bus, max_in_flight=max_in_flight)
        self.pool = check_token(pool, "the pool")
        self._callables = callables
        self._states = StateCache(bus.log)
        spec = ConsumerSpec(
            name=f"tools-{pool}",
            filters=[bus.subjects.call(ANY, pool)],
            start_sequence=start_sequence,
            inactive_s=inactive_s,
        )
        self.reads(spec)

    async def handle(self, delivery: Delivery) -> None:
        crashpoint("tools.received")
        call = await self._bus.codec.run_event(delivery.data)
        if not isinstance(call, CallRequested):
            raise UndecodableMessage(f"{delivery.subject} carries a {type(call).__name__}")
        run = self._bus.subjects.delivered_run(delivery.subject).run
        if not await self._states.has_begun(run, delivery):
            raise Drop(f"the run {run} has not begun")
        states = self._states.at(run, delivery)
        await self._callables.admit(run, states)
        if not delivery.fresh and await self._is_settled(run, call):
            return
        asked = msgspec.structs.asdict(call)
        call = TakenCall(**asked, again=not delivery.fresh, sequence=delivery.sequence)
        claimed: int | None = delivery.sequence
        if call.at_most_once:
            claimed = await self._claim(run, call, delivery)
        outcome: Message | None
        if claimed is None:
            outcome = failed_call(call, UNKNOWN_OUTCOME, "outcome_unknown")
        else:
            with working_on(delivery.headers.get(TRACEPARENT)):
                outcome = await self._run(run, call, states)
        if outcome is not None:
            await self.answer(run, call, outcome, delivery, after=claimed)
            crashpoint("tools.published")

    async def _is_settled(self, run: RunId, call: CallRequested) -> bool:
        """Does the call have a result, or has its run ended?"""
        state = RunState.of(run, await self._bus.log.read(run))
        return state.done is not None or call.turn < state.turn or is_answered(state, call)

    async def _claim(self, run: RunId, call: CallRequested, delivery: Delivery) -> int | None:
        """Record that the call starts; return the sequence. None: it was started before."""
        crashpoint("tools.before_claim")
        sequence = await self._bus.work_log.create_once(
            self._bus.subjects.started(run, attempt_of(call)),
            CallStarted(call=call.call, host=process_name()),
            # a new one for each try: the same again would pass for a lost acknowledgement
            msg_id=f"{run}:{call.call}:started:{uuid.uuid4().hex}",
            headers=answering(delivery),
        )
        crashpoint("tools.started")
        return sequence

    async def _run(self, run: RunId, call: TakenCall, states: States) -> Message | None:
        """Invoke; None if the run was cancelled meanwhile."""
        await self._cancellations.recheck(run)
        began = time.monotonic()
        crashpoint("tools.before_invoke")
        try:
            outcome = await self._cancellations.guard(
                run, self._callables.invoke(run, call, states)
            )
        except RunCancelled:
            return None
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            # the user's code raised this by itself, and the run waits
            message = "the call cancelled itself"
            error = ErrorInfo(code="tool_error", message=message)
            return CallFinished(call=call.call, kind=call.kind, turn=call.turn, error=error)
        crashpoint("tools.after_invoke")
        if isinstance(outcome, CallFinished):
            if outcome.error is not None and not outcome.output:
                self._cancellations.stop_run(run)  # the run fails: its other calls are useless
            duration_ms = round((time.monotonic() - began) * 1000)
            return msgspec.structs.replace(outcome, duration_ms=duration_ms)
        return outcome

    async def on_parked(self, delivery: Delivery, reason: str) -> None:
        await self.end_run_of(delivery, reason)
