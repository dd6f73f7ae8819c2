"""The tool host actor: runs the user's own code where that code lives.

Every call has an id. A call that may have been delivered before is looked up first: if it has a
result, that result stands. At-least-once calls run again; an at-most-once call that was started and
has no result is reported as unknown, never repeated. The host knows messages and outcomes; what a
call does is the business of the :class:`Callables` it was given.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
import uuid
from typing import Protocol

import msgspec
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.consumer import Delivery
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import PayloadTooLarge, UndecodableMessage
from sandstream_bus.headers import TRACEPARENT
from sandstream_bus.messages import (
    CallFinished,
    CallRequested,
    CallStarted,
    ErrorInfo,
    Message,
    ModelAnswered,
)
from sandstream_bus.runtime import Worker
from sandstream_bus.subjects import RunId, check_token
from sandstream_bus.topology import ConsumerSpec
from sandstream_bus.trace_context import working_on

from sandstream_actors.cancellations import Cancellations
from sandstream_actors.harness.parked_runs import end_parked_run
from sandstream_actors.run_headers import answering
from sandstream_actors.run_state import RunState
from sandstream_actors.state_cache import StateCache

logger = logging.getLogger(__name__)

UNKNOWN_OUTCOME = (
    "It is unknown whether this call took effect: the process that ran it was lost. "
    "It was not repeated."
)


class Callables(Protocol):
    """The user's code behind the calls of a pool."""

    async def admit(self, run: RunId, states: StateCache) -> None:
        """Return if the run's code is here; raise :class:`Retry` if it has to be waited for."""
        ...

    async def invoke(
        self, run: RunId, call: CallRequested, states: StateCache
    ) -> CallFinished | ModelAnswered:
        """Do what is asked. Errors of the user's code are outcomes; what is raised is our bug."""
        ...


class ToolHost:
    """One replica of one pool's tool host."""

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
        self.pool = check_token(pool, "the pool")
        self._bus = bus
        self._callables = callables
        self._states = StateCache(bus.log)
        self._cancellations = Cancellations(bus)
        self._name = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        spec = ConsumerSpec(
            name=f"tools-{pool}",
            filters=[f"{bus.subjects.prefix}.run.*.call.{pool}"],
            start_sequence=start_sequence,
            inactive_s=inactive_s,
        )
        self.worker = Worker(
            bus, spec, self._on_delivery, max_in_flight=max_in_flight, on_parked=self._on_parked
        )

    async def start(self) -> None:
        await self._cancellations.start()
        await self.worker.start()

    async def stop(self, grace_s: float = 10.0) -> None:
        await self._cancellations.stop()
        await self.worker.stop(grace_s)

    async def _on_delivery(self, delivery: Delivery) -> None:
        crashpoint("tools.received")
        call = await self._bus.codec.run_event(delivery.data)
        if not isinstance(call, CallRequested):
            raise UndecodableMessage(f"{delivery.subject} carries a {type(call).__name__}")
        run = self._bus.subjects.parse_run(delivery.subject).run
        await self._callables.admit(run, self._states)
        if not delivery.fresh and await self._is_settled(run, call):
            return
        call = msgspec.structs.replace(call, again=not delivery.fresh)
        outcome: Message | None
        if call.at_most_once and not await self._claim(run, call, delivery):
            outcome = _finished(call, output=UNKNOWN_OUTCOME, code="outcome_unknown")
        else:
            with working_on(delivery.headers.get(TRACEPARENT)):
                outcome = await self._run(run, call)
        if outcome is not None:
            await self._publish(run, call, outcome, delivery)

    async def _is_settled(self, run: RunId, call: CallRequested) -> bool:
        """Has the call a result, or has its run ended?"""
        state = RunState.of(run, await self._bus.log.read(run))
        return state.done is not None or call.turn < state.turn or call.call in state.results

    async def _claim(self, run: RunId, call: CallRequested, delivery: Delivery) -> bool:
        """Write down that the call starts. False: somebody started it before."""
        crashpoint("tools.before_claim")
        sequence = await self._bus.work_log.create_once(
            self._bus.subjects.started(run, call.call),
            CallStarted(call=call.call, host=self._name),
            # a new one for each try: the same again would pass for a lost acknowledgement
            msg_id=f"{run}:{call.call}:started:{uuid.uuid4().hex}",
            headers=answering(delivery),
        )
        crashpoint("tools.started")
        return sequence is not None

    async def _run(self, run: RunId, call: CallRequested) -> Message | None:
        """Invoke; None if the run was cancelled meanwhile."""
        task = asyncio.ensure_future(self._callables.invoke(run, call, self._states))
        began = time.monotonic()
        crashpoint("tools.before_invoke")
        try:
            with self._cancellations.watching(run, task):
                outcome = await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            if task.cancelling():
                return None
            # nobody cancelled it: the user's code raised this by itself, and the run waits
            message = "the call cancelled itself"
            error = ErrorInfo(code="tool_error", message=message)
            return CallFinished(call=call.call, kind=call.kind, turn=call.turn, error=error)
        crashpoint("tools.after_invoke")
        if isinstance(outcome, CallFinished):
            if outcome.error is not None and not outcome.output:
                self._cancellations.stop_run(run)  # the run fails: its other calls are in vain
            duration_ms = round((time.monotonic() - began) * 1000)
            return msgspec.structs.replace(outcome, duration_ms=duration_ms)
        return outcome

    async def _publish(
        self, run: RunId, call: CallRequested, outcome: Message, delivery: Delivery
    ) -> None:
        subject = self._bus.subjects.result(run, call.reply_pool)
        # one per request: after a move the call is asked for again, and an earlier result, which
        # does not count then, must not pass for this one
        msg_id = f"{run}:{call.call}:result:{delivery.sequence}"
        headers = answering(delivery)
        try:
            await self._bus.work_log.send(subject, outcome, msg_id=msg_id, headers=headers)
        except PayloadTooLarge as error:
            too_large = _finished(call, output=f"The result is too large: {error}", code=error.code)
            await self._bus.work_log.send(subject, too_large, msg_id=msg_id, headers=headers)
        crashpoint("tools.published")

    async def _on_parked(self, delivery: Delivery, reason: str) -> None:
        await end_parked_run(self._bus, self._bus.subjects.parse_run(delivery.subject).run, reason)


def _finished(call: CallRequested, *, output: str, code: str) -> CallFinished:
    return CallFinished(
        call=call.call,
        kind=call.kind,
        turn=call.turn,
        output=Raw(msgspec.json.encode(output)),
        error=ErrorInfo(code=code, message=output),
    )
