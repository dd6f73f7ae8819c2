"""Turns tasks of outside users into runs: decode, find the agent, write the run's first event. Once
per task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import InvalidSubject, MessageError
from sandstream_bus.logs.runs import Conflict, LogEvent
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.fresh import fresh_many
from sandstream_bus.nats.leader import Stored
from sandstream_bus.wire.attempts import attempt_headers
from sandstream_bus.wire.headers import KEY, MSG_ID, TRACEPARENT
from sandstream_bus.wire.messages import (
    ErrorInfo,
    RunDone,
    RunReopened,
    RunStarted,
    Task,
    TokenUsage,
)
from sandstream_bus.wire.specs import RunOptions, SessionUse
from sandstream_bus.wire.subjects import SHARED, RunId, conversation_of_user

from sandstream_actors.harness.retry_plan import CannotRetry, check_retried
from sandstream_actors.run.budgets import smaller, with_deadline
from sandstream_actors.run.deployed import UnknownAgent, resolved
from sandstream_actors.run.forced_ends import force_end
from sandstream_actors.run.output_items import user_message
from sandstream_actors.run.state import RunState


class TaskIntake:
    """Turns task messages into started runs."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def take(self, delivery: Delivery) -> None:
        """Start the task's run. A malformed task raises and is parked; see :meth:`refuse`."""
        started = await self._started(delivery.stored)
        if isinstance(started, ErrorInfo):
            await self.refuse(delivery, started)
            return
        run = self._run(delivery)
        crashpoint("harness.before_start")
        await self._append_first(
            delivery, run, self._bus.subjects.start(run, started.pool), started, "start"
        )
        crashpoint("harness.after_start")

    async def retry(self, run: RunId, reopened: RunReopened, msg_id: str) -> None:
        """Start a run whose task was refused before. Safe to repeat under the same ``msg_id``.

        Raises :class:`CannotRetry` if the task is gone, or if it would be refused again.
        """
        while True:
            events = await self._bus.log.read(run)
            if any(isinstance(it.event, RunStarted) for it in events):
                return
            task, started = await self.check(run, events)
            try:
                after = events[-1].sequence
                if events[-1].stored.msg_id != msg_id:
                    check_retried(RunState.of(run, events))
                    crashpoint("retry.before_task")
                    subject = self._bus.subjects.turn(run, started.pool)
                    after = await self._bus.work_log.append(
                        run, subject, reopened, after=after, msg_id=msg_id
                    )
                    crashpoint("retry.after_task")
                await self._bus.work_log.append(
                    run,
                    self._bus.subjects.start(run, started.pool),
                    started,
                    after=after,
                    msg_id=f"{run}:start:{after}",
                    headers=_trace(task.headers),
                )
            except Conflict:
                continue
            return

    async def check(self, run: RunId, events: Sequence[LogEvent]) -> tuple[Stored, RunStarted]:
        """The task of a refused run, and the first event that the run would have now.

        Raises :class:`CannotRetry`.
        """
        ends = [it.event for it in events if isinstance(it.event, RunDone)]
        task = await self._task_of(run, ends[-1].task) if ends else None
        if task is None:
            raise CannotRetry(
                f"the task of run {run} is not stored any more: submit it again, with another key"
            )
        try:
            started = await self._started(task)
        except MessageError as error:
            raise CannotRetry(f"run {run} would be refused again: {error}") from error
        if isinstance(started, ErrorInfo):
            raise CannotRetry(f"run {run} would be refused again: {started.message}")
        return task, started

    async def _task_of(self, run: RunId, sequence: int) -> Stored | None:
        """The task at that sequence of the requests, if the run was made from it."""
        bus = self._bus
        for subject in bus.subjects.tasks() if sequence else ():
            found = await fresh_many(
                bus.connection, bus.topology.requests, subject, after=sequence - 1, limit=1
            )
            if found and found[0].sequence == sequence:
                task = found[0]
                made = bus.subjects.run_of_task(task.subject, task.headers, task.sequence)
                return task if made == run else None
        return None

    async def _started(self, given: Stored) -> RunStarted | ErrorInfo:
        """The first event of a task's run, or why the run cannot start."""
        user, agent = self._bus.subjects.parse_task(given.subject)
        task = await self._bus.codec.task(given.data, may_claim=user == SHARED)
        registered = await self._bus.agents.find(agent)
        if registered is None:
            known = ", ".join(await self._bus.agents.names()) or "none"
            return ErrorInfo(
                code="unknown_agent",
                message=f"no agent {agent!r} is registered (known: {known}). Start a worker "
                "that offers it: sandstream worker my_app.py",
            )
        if _approves_too_soon(task, registered.options):
            message = (
                f"approval_expires_s: the agent {agent!r} approves calls whose approval expires, "
                "so a task may give people more time, but not less"
            )
            return ErrorInfo(code="user_error", message=message)
        if task.session and (task.conversation_id or task.previous_response_id):
            message = (
                "session keeps the conversation itself: give no conversation_id and no "
                "previous_response_id with it"
            )
            return ErrorInfo(code="user_error", message=message)
        try:
            session = conversation_of_user(user, task.session) if task.session else ""
        except InvalidSubject as error:
            return ErrorInfo(code="user_error", message=str(error))
        try:
            graph = await resolved(registered.graph, self._bus.agents)
        except UnknownAgent as unknown:
            return ErrorInfo(code="unknown_agent", message=str(unknown))
        return RunStarted(
            graph=graph,
            input=[user_message(task.input)] if isinstance(task.input, str) else task.input,
            options=_options(task, session, registered.options),
            pool=registered.pool,
            context=task.context,
            key=given.headers.get(KEY) or given.headers.get(MSG_ID),
            is_text=isinstance(task.input, str),
        )

    async def refuse(self, delivery: Delivery, error: ErrorInfo) -> None:
        """The task is refused: its run consists of a ``done`` with the reason."""
        try:
            run = self._run(delivery)
        except InvalidSubject:
            return  # no run can have this name: the parked message says why
        done = RunDone(
            status="failed",
            agent=self._bus.subjects.parse_task(delivery.subject).agent,
            turns=0,
            usage=TokenUsage(),
            error=error,
            task=delivery.sequence,
        )
        crashpoint("harness.before_refuse")
        await self._append_first(delivery, run, self._bus.subjects.done(run), done, "done0")
        crashpoint("harness.after_refuse")

    async def give_up(self, delivery: Delivery, reason: str) -> None:
        """The task was parked: its run ends with the reason, even if the task cannot be decoded."""
        try:
            await self.refuse(delivery, ErrorInfo(code="parked", message=reason))
        except MessageError:
            await force_end(self._bus, self._run(delivery), reason)

    def _run(self, delivery: Delivery) -> RunId:
        subjects = self._bus.subjects
        return subjects.run_of_task(delivery.subject, delivery.headers, delivery.sequence)

    async def _append_first(
        self,
        delivery: Delivery,
        run: RunId,
        subject: str,
        message: RunStarted | RunDone,
        name: str,
    ) -> None:
        headers = _trace(delivery.headers) | attempt_headers(delivery.attempt, delivery.given_back)
        after = 0
        while True:
            try:
                await self._bus.work_log.append(
                    run,
                    subject,
                    message,
                    after=after,
                    msg_id=f"{run}:{name}",
                    headers=headers,
                )
            except Conflict as conflict:
                if any(isinstance(it.event, RunStarted | RunDone) for it in conflict.news):
                    return  # the same task again: its run exists
                if conflict.news:
                    after = conflict.news[-1].sequence  # a cancel was quicker than we
            else:
                return


def _trace(headers: Mapping[str, str]) -> dict[str, str]:
    trace = headers.get(TRACEPARENT)
    return {TRACEPARENT: trace} if trace else {}


def _options(task: Task, session: str, options: RunOptions) -> RunOptions:
    changed: dict[str, object] = {
        name: value
        for name in (
            "stream",
            "previous_response_id",
            "conversation_id",
            "group_id",
            "metadata",
            "approval_expires_s",
        )
        if (value := getattr(task, name))
    }
    if session:
        changed["session"] = SessionUse(id=session, busy=task.session_busy)
    # each option has its own deadline: a task's must not replace the agent's
    given = [with_deadline(it) if it else None for it in (task.budget, options.budget)]
    budget = smaller(*given)
    if budget is not None:
        changed["budget"] = budget
    if task.max_turns is not msgspec.UNSET:
        changed["max_turns"] = task.max_turns
    return msgspec.structs.replace(options, **changed) if changed else options


def _approves_too_soon(task: Task, options: RunOptions) -> bool:
    """Would calls be approved earlier than the agent's owner allows? A user who may submit tasks
    may not approve calls that way.
    """
    wanted, allowed = task.approval_expires_s, options.approval_expires_s
    if options.approval_expiry != "approve" or not wanted:
        return False
    return allowed is None or wanted < allowed
