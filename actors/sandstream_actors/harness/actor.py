"""The harness actor: takes any turn of any run of its pool. Commit, dispatch, ack.

A message wakes it. It folds the run's log, gets the next step from :func:`next_step`, does it, and
only then acknowledges the message. Redelivery repairs a crash at any point. It keeps nothing that
the log cannot rebuild, and runs no user code.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import assert_never

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import Drop, MessageError, PayloadTooLarge
from sandstream_bus.logs.open_runs import entry_of
from sandstream_bus.logs.remarks import is_stray, read_event
from sandstream_bus.logs.runs import Conflict
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.runtime import Worker
from sandstream_bus.wire.headers import EXPECTED_SEQUENCE
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    ErrorInfo,
    Message,
    ModelAnswered,
    ModelDeferred,
    RunDone,
    RunEvent,
    TurnRequested,
)
from sandstream_bus.wire.subjects import ANY, RunId, check_token, is_token

from sandstream_actors.base import Actor
from sandstream_actors.harness.alarms import Alarms
from sandstream_actors.harness.asks import AskIntake
from sandstream_actors.harness.children import Children
from sandstream_actors.harness.dispatch import dispatch
from sandstream_actors.harness.expiry import Expiry
from sandstream_actors.harness.model_turn import ModelCaller, take_turn
from sandstream_actors.harness.open_index import note_waiting
from sandstream_actors.harness.step_kinds import (
    Ask,
    AskModel,
    HandOver,
    OpenConversation,
    Pause,
    RearmTimer,
    Wait,
)
from sandstream_actors.harness.steps import next_step
from sandstream_actors.harness.tasks import TaskIntake
from sandstream_actors.run.cancellations import RunCancelled, is_being_cancelled
from sandstream_actors.run.conversation import (
    ConversationBusy,
    Membership,
    why_closed,
)
from sandstream_actors.run.ends import Finish, failed
from sandstream_actors.run.forced_ends import end_parked_run
from sandstream_actors.run.headers import again, deciding, following
from sandstream_actors.run.retry import with_attempts
from sandstream_actors.run.sandbox_calls import closing_calls
from sandstream_actors.run.state import RunState
from sandstream_actors.run.state_cache import StateCache, take_in

logger = logging.getLogger(__name__)


class Harness(Actor):
    """One replica of one pool."""

    hears_cancellations = True

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
        super().__init__("harness", bus=bus, max_in_flight=max_in_flight)
        self.pool = check_token(pool, "the pool")
        self._models = models
        self._states = StateCache(bus.log)
        self._tasks = TaskIntake(bus)
        self._asks = AskIntake(bus)
        self._children = Children(bus)
        self._membership = Membership(bus)
        self._alarms = Alarms(bus)
        self.works_on(Expiry(bus).run)
        subjects = bus.subjects

        def reads(
            kind: str, filters: list[str], yields_to: Worker | None = None, stream: str = ""
        ) -> Worker:
            spec = ConsumerSpec(
                name=f"{kind}-{pool}",
                stream=stream,
                kind="harness",
                filters=filters,
                start_sequence=None if stream else start_sequence,
                inactive_s=inactive_s,
            )
            return self.reads(spec, announce=yields_to is None, yields_to=yields_to)

        # Runs with open turns come first, then runs that have just started, then tasks. So of
        # thousands of tasks some end soon, instead of all late, and only active runs use memory.
        going_on = reads(
            "harness",
            [
                *(subjects.turn(ANY, pool), subjects.result(ANY, pool)),
                *(subjects.cancel(ANY), subjects.approval_decided(ANY)),
            ],
        )
        starts = reads("starts", [subjects.start(ANY, pool)], going_on)
        self._going_on, self._starts = going_on.spec, starts.spec
        topology = bus.topology
        if takes_tasks:
            reads("tasks", subjects.tasks(), starts, topology.requests)
        # For the runs of all pools: any live harness carries these.
        self.carries(topology.requests, "asks", subjects.asks(), self._asks.take)
        self.carries(topology.timers, "timers", subjects.due_for("run"), bus.timers.send_on)

    async def prepare(self) -> None:
        """An older version read starts with the consumer of active runs: continue after it."""
        topology, connection, starts = self._bus.topology, self._bus.connection, self._starts
        older = await topology.consumer_info(connection, self._going_on.name)
        if older is None or starts.filters[0] not in older["config"]["filter_subjects"]:
            return
        if await topology.consumer_info(connection, starts.name) is None:
            after = older["ack_floor"]["stream_seq"]
            spec = msgspec.structs.replace(starts, start_sequence=after + 1)
            await topology.ensure_consumer(connection, spec)

    # --- waking --------------------------------------------------------------------------------

    async def handle(self, delivery: Delivery) -> None:
        crashpoint("harness.received")
        if self._is_task(delivery):
            await self._tasks.take(delivery)
            return
        where = self._bus.subjects.delivered_run(delivery.subject)
        event: RunEvent | None = None
        if is_stray(self._bus.subjects, delivery.subject, delivery.headers):
            event = await self._event(delivery)  # before any read: the message may be invalid
        if where.kind != "start" and not await self._states.has_begun(where.run, delivery):
            # if it starts later, it sees the cancel request in its log
            raise Drop(f"the run {where.run} has not begun")
        if where.kind == "cancel":  # the live copy may have been lost, and a model call may be long
            self._cancellations.take(where.run, delivery.data)
        elif isinstance(event, ApprovalDecided) and event.run and event.run != where.run:
            # a decision about a call of a child run, made in a run above it
            await self._children.pass_on(where.run, event, delivery.sequence)
        elif where.kind == "result" and self._cancellations.is_watching(where.run):
            await self._stop_if_tripped(where.run, delivery)
        async with self._states.exclusive(where.run):
            try:
                await self._advance(where.run, delivery)
            except BaseException:
                self._states.drop(where.run)  # the cached state may be wrong; do not trust it
                raise

    def _is_task(self, delivery: Delivery) -> bool:
        return self._bus.subjects.split(delivery.subject).family in ("task", "ask")

    async def _event(self, delivery: Delivery) -> RunEvent:
        bus = self._bus
        return await read_event(bus.codec, bus.subjects, delivery.subject, delivery.data)

    async def _stop_if_tripped(self, run: RunId, delivery: Delivery) -> None:
        """A guardrail that refuses the run's input stops the model call that runs beside it."""
        event = await self._bus.codec.run_event(delivery.data)
        if isinstance(event, CallFinished) and event.traits.checks_input and event.error:
            self._cancellations.stop_run(run)

    async def _advance(self, run: RunId, delivery: Delivery) -> None:
        """Do the run's next steps until it has to wait for another actor or a person."""
        state = await self._state(run, delivery)
        await self._begin(state, delivery)
        while state.started is not None and state.pool == self.pool:
            step = next_step(state)
            match step:
                case Wait():
                    await self._rest(state, delivery)
                    return
                case Finish():
                    await self._finish(state, step.done, delivery)
                case Ask():
                    await self._ask(state, step.calls, step.approvals, delivery)
                    return
                case AskModel():
                    if state.trigger != delivery.sequence:
                        return  # the trigger's own delivery takes the turn
                    if step.beside:
                        await self._ask(state, step.beside, [], delivery)
                    await self._take_turn(state, delivery)
                case OpenConversation():
                    if not await self._open_conversation(state, delivery):
                        return
                case HandOver():
                    pool = state.pool_of(step.turn.agent)
                    if step.turn.agent in step.turn.agents:
                        pool = step.turn.agents[step.turn.agent].pool or state.places.pool
                    subject = self._bus.subjects.turn(run, pool)
                    crashpoint("harness.before_handoff")
                    await self._append(
                        state, subject, step.turn, f"t{step.turn.turn}:handoff", delivery
                    )
                    crashpoint("harness.after_handoff")
                case Pause():
                    subject = self._bus.subjects.waiting(run)
                    await note_waiting(self._bus, state, step.waiting)
                    crashpoint("harness.before_waiting")
                    await self._append(state, subject, step.waiting, f"wait{state.waits}", delivery)
                    crashpoint("harness.after_waiting")
                    if state.done is not None:  # it ended meanwhile: the index entry came too late
                        await self._bus.open_runs.leave(run)
                    await self._children.report_waiting(state)
                case RearmTimer():
                    if state.trigger == delivery.sequence:
                        await self._arm_retry(state, delivery)
                    self._states.drop(run)  # it may wait long, and waiting costs nothing
                    return
                case _:
                    assert_never(step)
        self._states.drop(run)  # another pool's run: a cancel goes to all pools

    async def _begin(self, state: RunState, delivery: Delivery) -> None:
        """Prepare before any decision. The first message of a run arms its alarm. If another
        delivery of this message crashed, its calls may be in the log without their child runs:
        start those.
        """
        if state.started is None or state.pool != self.pool or state.done is not None:
            return
        kind = self._bus.subjects.parse_run(delivery.subject).kind
        if kind == "start" or (state.past.retries and kind == "turn"):
            await self._alarms.arm_deadline(state)
        # the process that ended a reopened run may have removed its entry late
        if not delivery.fresh or (state.reopens and kind == "turn"):
            await self._bus.work_log.enter_again(state.run, entry_of(state.started))
            await self._children.start(state, state.open_children())

    async def _rest(self, state: RunState, delivery: Delivery) -> None:
        """There is no step to do. Messages that follow from the last decision may be missing: send
        them.
        """
        if state.done is not None:
            if not delivery.fresh:  # the process that wrote the end may have died right after
                await self._clean_up(state, delivery)
            self._states.drop(state.run)
        elif state.waiting is not None:
            if not delivery.fresh:
                await self._children.report_waiting(state)
            self._states.drop(state.run)  # people may take days, and waiting costs nothing

    async def _open_conversation(self, state: RunState, delivery: Delivery) -> bool:
        """Join the conversation; False while earlier runs hold it."""
        subject = self._bus.subjects.history(state.run)
        try:
            opened = await self._membership.open(state)
            if opened is None:
                self._states.drop(state.run)
                return False
            await self._append(state, subject, opened, "history", delivery)
        except (ConversationBusy, PayloadTooLarge) as error:
            await self._finish(state, failed(state, why_closed(error)).done, delivery)
        return True

    async def _state(self, run: RunId, delivery: Delivery) -> RunState:
        is_start = self._bus.subjects.parse_run(delivery.subject).kind == "start"
        is_first = delivery.headers.get(EXPECTED_SEQUENCE) == "0"
        if is_start and is_first and delivery.fresh and self._bus.log.has_proof:
            # written with compare-and-set: no event can precede it
            return await self._states.begin(run, delivery)
        return await self._states.woken(run, delivery)

    # --- effects -------------------------------------------------------------------------------

    async def _take_turn(self, state: RunState, delivery: Delivery) -> None:
        turn = state.turn + 1
        subject = self._bus.subjects.model(state.run)
        crashpoint("harness.before_model")
        work = take_turn(self._bus, self._models, state, delivery.deliveries)
        try:
            outcome = await self._cancellations.guard(state.run, work)
        except (RunCancelled, asyncio.CancelledError):
            if is_being_cancelled():
                raise
            # a cancel request stopped the model call: its event is in the log, or it was invalid
            state.fold(await self._bus.log.read(state.run, after=state.last_seq))
            if state.cancel is None:
                self._cancellations.forget(
                    state.run
                )  # otherwise the next call would be stopped too
            return
        match outcome:
            case ModelAnswered():
                try:
                    await self._append(state, subject, outcome, f"t{turn}:model", delivery)
                except PayloadTooLarge as error:
                    too_large = ErrorInfo(code="model_behavior", message=f"The answer: {error}")
                    await self._finish(state, failed(state, too_large).done, delivery)
            case ModelDeferred():
                msg_id = f"t{turn}:wait{outcome.attempt}"
                await self._append(state, subject, outcome, msg_id, delivery)
            case ErrorInfo():
                await self._finish(state, failed(state, outcome).done, delivery)
            case None:  # a guardrail beside the call was quicker
                return
            case _:
                assert_never(outcome)

    async def _append(
        self, state: RunState, subject: str, message: Message, name: str, delivery: Delivery
    ) -> None:
        """Commit a decision. If the run has new events, fold them, and commit if the decision still
        fits.
        """
        before = _stage(state)
        # a new id for each decision: with the same id, the server would acknowledge another
        # replica's answer as if it were ours
        msg_id = f"{state.run}:{name}:{uuid.uuid4().hex}"
        crashpoint("harness.before_commit")
        while True:
            try:
                sequence = await self._bus.work_log.append(
                    state.run,
                    subject,
                    message,
                    after=state.last_seq,
                    msg_id=msg_id,
                    headers=deciding(state, delivery),
                )
            except Conflict as conflict:
                state.fold(conflict.news)
                stopped = state.cancel is not None and state.cancel.mode == "immediate"
                if state.pool != self.pool or _stage(state) != before or stopped:
                    return
                if not isinstance(message, ModelAnswered | ModelDeferred):
                    return  # the new events may lead to another decision
            else:
                await take_in(self._bus, state, sequence, message, subject)  # type: ignore[arg-type]
                if isinstance(message, ModelAnswered):
                    state.size_bytes += sum(map(len, message.output))
                crashpoint("harness.after_commit")
                return

    async def _finish(self, state: RunState, done: RunDone, delivery: Delivery) -> None:
        """Write the run's end, unless new events change it; then handle the consequences."""
        await self._membership.leave(state, done)
        subject = self._bus.subjects.done(state.run)
        crashpoint("harness.before_done")
        while True:
            try:
                sequence = await self._bus.work_log.append(
                    state.run,
                    subject,
                    done,
                    after=state.last_seq,
                    msg_id=f"{state.run}:done{state.dones}:{uuid.uuid4().hex}",
                    headers=deciding(state, delivery),
                )
            except Conflict as conflict:
                before = _stage(state)
                state.fold(conflict.news)
                if state.pool != self.pool or _stage(state) != before:
                    return
                if done.status == "completed":
                    step = next_step(state)  # a cancel or more input may have changed the end
                    if not isinstance(step, Finish):
                        return
                    done = step.done
            else:
                await take_in(self._bus, state, sequence, done, subject)
                crashpoint("harness.after_done")
                await self._clean_up(state, delivery)
                return

    async def _clean_up(self, state: RunState, delivery: Delivery) -> None:
        """The consequences of a run's end. Safe to repeat."""
        await asyncio.gather(
            self._bus.open_runs.leave(state.run), self._follow_end(state, delivery)
        )

    async def _follow_end(self, state: RunState, delivery: Delivery) -> None:
        await self._release_sandboxes(state, delivery)
        await self._children.cancel_open(state)
        await self._membership.wake_next(state)
        await self._children.report_end(state)

    async def _ask(
        self,
        state: RunState,
        calls: list[CallRequested],
        approvals: list[ApprovalRequested],
        delivery: Delivery,
    ) -> None:
        """Send calls to actors and approval requests to people. Their results wake the run."""
        calls = with_attempts(state, calls)
        children = [call for call in calls if call.traits.is_child_run]
        crashpoint("harness.before_dispatch")
        # first: a question that is in the log is not asked again
        await asyncio.gather(*(self._alarms.arm_expiry(state, it) for it in approvals))
        await dispatch(self._bus, state, calls, approvals, delivery)
        # their results count only after the calls are in the log, and a child may be quick
        await self._children.start(state, children)
        crashpoint("harness.after_dispatch")
        if approvals:  # no other message may wake the run: it must notice by itself that it waits
            state.fold(await self._bus.log.read(state.run, after=state.last_seq))
            await self._advance(state.run, delivery)

    async def _release_sandboxes(self, state: RunState, delivery: Delivery) -> None:
        """Close sandboxes and calls that a run left open because it ended at once (cancelled,
        failed in a turn).
        """
        calls = closing_calls(state)
        if calls:
            await self._ask(state, calls, [], delivery)

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
            msg_id=f"{state.run}:t{deferred.turn}:timer{deferred.attempt}{again(state)}",
            headers=following(state, delivery),
        )
        crashpoint("harness.after_timer")

    # --- failure -----------------------------------------------------------------------------

    async def on_parked(self, delivery: Delivery, reason: str) -> None:
        """A message of a run could not be handled: the run ends and says so."""
        if self._is_task(delivery):
            await self._tasks.give_up(delivery, reason)
            return
        where = self._bus.subjects.parse_run(delivery.subject)
        is_remark = where.kind in ("cancel", "approval")
        if not is_token(where.run) or (is_remark and await self._says_nothing(delivery)):
            return  # the run does not exist, or it continues
        if not is_remark or await self._is_ours(where.run):
            await end_parked_run(self._bus, where.run, reason)

    async def _says_nothing(self, delivery: Delivery) -> bool:
        try:
            await self._event(delivery)
        except MessageError:
            return True
        return False

    async def _is_ours(self, run: RunId) -> bool:
        """Every pool gets every cancel request. Read the subject instead of the log, which may be
        unreadable.
        """
        start = await self._bus.log.first_subject(self._bus.subjects.start(run, "*"))
        return start is None or start == self._bus.subjects.start(run, self.pool)


def _stage(state: RunState) -> tuple[int, int, int]:
    """A decision is outdated once one of these has changed."""
    return state.turn, state.dones, state.handoffs
