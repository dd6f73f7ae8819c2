"""The harness actor: takes any turn of any run of its pool. Commit, dispatch, ack.

Woken by a message, it folds the run's log, asks :func:`next_step` what is missing, does that, and
only then lets the message be acknowledged. A crash at any point is healed by the redelivery. It
keeps nothing that the log cannot rebuild, and knows no user code.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import assert_never

from sandstream_bus.bus import Bus
from sandstream_bus.consumer import Delivery
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import MessageError, ObjectMissing, PayloadTooLarge
from sandstream_bus.headers import EXPECTED_SEQUENCE, TRACEPARENT, caused_by
from sandstream_bus.log import Conflict
from sandstream_bus.messages import (
    CallRequested,
    ErrorInfo,
    Message,
    ModelAnswered,
    ModelDeferred,
    RunDone,
    TurnRequested,
)
from sandstream_bus.runtime import Worker
from sandstream_bus.subjects import RunId, check_token
from sandstream_bus.topology import ConsumerSpec

from sandstream_actors.cancellations import Cancellations
from sandstream_actors.harness.model_turn import ModelCaller, take_turn
from sandstream_actors.harness.steps import (
    Ask,
    AskModel,
    Finish,
    RearmTimer,
    Wait,
    closing_calls,
    failed,
    next_step,
)
from sandstream_actors.harness.tasks import TaskIntake
from sandstream_actors.run_state import RunState
from sandstream_actors.state_cache import StateCache

logger = logging.getLogger(__name__)


class Harness:
    """One replica of one pool."""

    def __init__(
        self,
        bus: Bus,
        models: ModelCaller,
        *,
        pool: str = "main",
        takes_tasks: bool = True,
        start_sequence: int | None = None,
        inactive_s: float | None = None,
        max_in_flight: int = 256,
    ) -> None:
        self.pool = check_token(pool, "the pool")
        self._bus = bus
        self._models = models
        self._states = StateCache(bus.log)
        self._tasks = TaskIntake(bus)
        self._cancellations = Cancellations(bus)
        prefix = bus.subjects.prefix
        filters = [f"{prefix}.run.*.{kind}.{pool}" for kind in ("start", "turn", "result")]
        filters.append(f"{prefix}.run.*.cancel")
        if takes_tasks:
            filters.append(f"{prefix}.task.*")
        spec = ConsumerSpec(
            name=f"harness-{pool}",
            filters=filters,
            start_sequence=start_sequence,
            inactive_s=inactive_s,
        )
        self.worker = Worker(
            bus, spec, self._on_delivery, max_in_flight=max_in_flight, on_parked=self._on_parked
        )

    async def start(self) -> None:
        # a cancel must reach whoever holds the run's model call, not only whoever is woken by it
        await self._cancellations.start()
        await self.worker.start()

    async def stop(self, grace_s: float = 10.0) -> None:
        await self._cancellations.stop()
        await self.worker.stop(grace_s)

    # --- waking --------------------------------------------------------------------------------

    async def _on_delivery(self, delivery: Delivery) -> None:
        crashpoint("harness.received")
        if delivery.subject.startswith(f"{self._bus.subjects.prefix}.task."):
            await self._tasks.take(delivery)
            return
        where = self._bus.subjects.parse_run(delivery.subject)
        if where.kind == "cancel":  # the live copy may have been lost, and a model call may be long
            self._cancellations.take(where.run, delivery.data)
        async with self._states.exclusive(where.run):
            try:
                await self._advance(where.run, delivery)
            except BaseException:
                self._states.drop(where.run)  # whatever the cached state was, do not trust it
                raise

    async def _advance(self, run: RunId, delivery: Delivery) -> None:
        """Do what the run needs, step by step, until it has to wait for somebody else."""
        state = await self._state(run, delivery)
        while state.started is not None and state.pool == self.pool:
            step = next_step(state)
            match step:
                case Wait():
                    if state.done is not None:
                        if not delivery.fresh:  # whoever wrote the end may have died after it
                            await self._release_sandboxes(state, delivery)
                        self._states.drop(run)
                    return
                case Finish():
                    await self._append(state, "done", step.done, f"done{state.dones}", delivery)
                case Ask():
                    await self._ask(state, step.calls, delivery)
                    return
                case AskModel():
                    if state.trigger != delivery.sequence:
                        return  # the trigger's own delivery takes the turn
                    await self._take_turn(state, delivery)
                case RearmTimer():
                    if state.trigger == delivery.sequence:
                        await self._arm_retry(state, delivery)
                    self._states.drop(run)  # it may wait for long, and waiting costs nothing
                    return
                case _:
                    assert_never(step)
        self._states.drop(run)  # another pool's run: a cancel goes to all pools

    async def _state(self, run: RunId, delivery: Delivery) -> RunState:
        is_start = self._bus.subjects.parse_run(delivery.subject).kind == "start"
        is_first = delivery.headers.get(EXPECTED_SEQUENCE) == "0"
        if is_start and is_first and delivery.fresh:
            # written under compare-and-set: nothing can be before it
            event = await self._bus.codec.run_event(delivery.data)
            traceparent = delivery.headers.get(TRACEPARENT)
            return self._states.begin(run, delivery.sequence, event, traceparent)
        return await self._states.load(run, upto=delivery.sequence)

    # --- effects -------------------------------------------------------------------------------

    async def _take_turn(self, state: RunState, delivery: Delivery) -> None:
        turn = state.turn + 1
        crashpoint("harness.before_model")
        task = asyncio.ensure_future(take_turn(self._bus, self._models, state, delivery.deliveries))
        try:
            with self._cancellations.watching(state.run, task):
                outcome = await task
        except asyncio.CancelledError:
            if not task.cancelled() or _is_being_cancelled():
                raise
            # a cancel request stopped the model call: its event is in the log
            state.fold(await self._bus.log.read(state.run, after=state.last_seq))
            return
        match outcome:
            case ModelAnswered():
                try:
                    await self._append(state, "model", outcome, f"t{turn}:model", delivery)
                except PayloadTooLarge as error:
                    too_large = ErrorInfo(code="model_behavior", message=f"The answer: {error}")
                    done = failed(state, too_large).done
                    await self._append(state, "done", done, f"done{state.dones}", delivery)
            case ModelDeferred():
                msg_id = f"t{turn}:wait{outcome.attempt}"
                await self._append(state, "model", outcome, msg_id, delivery)
            case ErrorInfo():
                done = failed(state, outcome).done
                await self._append(state, "done", done, f"done{state.dones}", delivery)

    async def _append(
        self, state: RunState, kind: str, message: Message, name: str, delivery: Delivery
    ) -> None:
        """Commit a decision. If the run moved on, take in the news, and commit if it still fits."""
        subjects = self._bus.subjects
        subject = subjects.done(state.run) if kind == "done" else subjects.model(state.run)
        headers = caused_by(delivery.sequence, state.traceparent)
        turn, dones = state.turn, state.dones
        # a new one for each decision: another replica's answer under the same id would be
        # acknowledged as if it were ours
        msg_id = f"{state.run}:{name}:{uuid.uuid4().hex}"
        crashpoint("harness.before_done" if kind == "done" else "harness.before_commit")
        while True:
            try:
                sequence = await self._bus.work_log.append(
                    state.run,
                    subject,
                    message,
                    after=state.last_seq,
                    msg_id=msg_id,
                    headers=headers,
                )
            except Conflict as conflict:
                state.fold(conflict.news)
                moved = state.pool != self.pool
                outdated = moved or state.turn != turn or state.dones != dones
                stopped = state.cancel is not None and state.cancel.mode == "immediate"
                if outdated or (stopped and not isinstance(message, RunDone)):
                    return
                if isinstance(message, RunDone):
                    step = next_step(state)  # a cancel or a result may have changed the end
                    if isinstance(step, Finish):
                        message = step.done
            else:
                state.apply(sequence, message)  # type: ignore[arg-type]
                crashpoint("harness.after_done" if kind == "done" else "harness.after_commit")
                if kind == "done":
                    await self._release_sandboxes(state, delivery)
                return

    async def _ask(self, state: RunState, calls: list[CallRequested], delivery: Delivery) -> None:
        """Send calls to who does them, together. Their results will wake the run."""
        headers = caused_by(delivery.sequence, state.traceparent)
        crashpoint("harness.before_dispatch")
        await asyncio.gather(
            *(
                self._bus.work_log.send(
                    self._subject_of(state, call),
                    call,
                    msg_id=f"{state.run}:{call.call}{_again(state)}",
                    headers=headers,
                )
                for call in calls
            )
        )
        crashpoint("harness.after_dispatch")

    def _subject_of(self, state: RunState, call: CallRequested) -> str:
        if not call.sandbox:
            return self._bus.subjects.call(state.run, state.host)
        assert state.started is not None
        opened = state.sandboxes.get(call.agent)
        if opened is not None:
            return self._bus.subjects.run_sandbox(state.run, opened.provider, opened.node)
        use = state.started.graph.agents[call.agent].sandbox
        assert use is not None
        return self._bus.subjects.run_sandbox(state.run, use.spec.provider, use.spec.node)

    async def _release_sandboxes(self, state: RunState, delivery: Delivery) -> None:
        """Close what a run that ended at once (cancelled, failed in a turn) has left open."""
        calls = closing_calls(state)
        if calls:
            await self._ask(state, calls, delivery)

    async def _arm_retry(self, state: RunState, delivery: Delivery) -> None:
        deferred = state.deferred
        assert deferred is not None
        crashpoint("harness.before_timer")
        await self._bus.timers.arm(
            state.run,
            "model",
            self._bus.subjects.turn(state.run, self.pool),
            TurnRequested(turn=deferred.turn, agent=state.agent_name),
            delay_s=deferred.delay_s,
            msg_id=f"{state.run}:t{deferred.turn}:timer{deferred.attempt}{_again(state)}",
            headers=caused_by(delivery.sequence, state.traceparent),
        )
        crashpoint("harness.after_timer")

    # --- failure -----------------------------------------------------------------------------

    async def _on_parked(self, delivery: Delivery, reason: str) -> None:
        """A message of a run could not be handled: the run ends and says so."""
        if delivery.subject.startswith(f"{self._bus.subjects.prefix}.task."):
            await self._tasks.refuse(delivery, ErrorInfo(code="parked", message=reason))
            return
        where = self._bus.subjects.parse_run(delivery.subject)
        if where.kind != "cancel" or await self._is_ours(where.run):
            await end_parked_run(self._bus, where.run, reason)

    async def _is_ours(self, run: RunId) -> bool:
        """Every pool gets every cancel. Asked of the subject, as the log may be unreadable here."""
        start = await self._bus.log.first_subject(self._bus.subjects.start(run, "*"))
        return start is None or start == self._bus.subjects.start(run, self.pool)


def _again(state: RunState) -> str:
    """Part of message ids: what is asked again after a move or a reopening is another message."""
    return f":m{state.moves}r{state.reopens}" if state.moves or state.reopens else ""


async def end_parked_run(bus: Bus, run: RunId, reason: str) -> None:
    """Write the end of a run one of whose messages was parked, unless it has ended."""
    error = ErrorInfo(code="parked", message=f"a message of this run was parked: {reason}")
    while True:
        try:
            state = RunState.of(run, await bus.log.read(run))
        except (MessageError, ObjectMissing):  # unreadable: end it from what the server knows
            state = RunState(run)
            state.last_seq = await bus.log.last_sequence(run)
            ended = await bus.log.last(bus.subjects.done(run))
            if ended is not None:
                return
        if state.done is not None:
            return
        done = RunDone(
            status="failed",
            agent=state.agent_name,
            turns=state.turn,
            usage=state.usage,
            error=error,
        )
        crashpoint("parking.before_end")
        try:
            await bus.log.append(
                run,
                bus.subjects.done(run),
                done,
                after=state.last_seq,
                msg_id=f"{run}:parked{state.last_seq}",
            )
        except Conflict:
            continue
        crashpoint("parking.after_end")
        return


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
