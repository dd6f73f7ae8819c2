"""Tasks from anybody become runs: decode, find the agent, write the run's first event. Once per
task.
"""

from __future__ import annotations

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.consumer import Delivery
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.headers import MSG_ID, TRACEPARENT, caused_by
from sandstream_bus.log import Conflict
from sandstream_bus.messages import ErrorInfo, RunDone, RunStarted, Task, TokenUsage
from sandstream_bus.specs import RunOptions, SessionUse
from sandstream_bus.subjects import RunId, run_id_of_key

from sandstream_actors.budgets import smaller, with_deadline
from sandstream_actors.deployed import UnknownAgent, resolved
from sandstream_actors.output_items import user_message


class TaskIntake:
    """Turns task messages into started runs."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def take(self, delivery: Delivery) -> None:
        """Start the task's run. A malformed task raises and is parked; see :meth:`refuse`."""
        task = await self._bus.codec.task(delivery.data)
        agent = self._bus.subjects.parse_task(delivery.subject)
        registered = await self._bus.agents.find(agent)
        if registered is None:
            known = ", ".join(await self._bus.agents.names()) or "none"
            await self.refuse(
                delivery,
                ErrorInfo(
                    code="unknown_agent",
                    message=f"no agent {agent!r} is registered (known: {known}). Start a worker "
                    "that offers it: sandstream worker my_app.py",
                ),
            )
            return
        if task.session and (task.conversation_id or task.previous_response_id):
            message = (
                "session keeps the conversation itself: give no conversation_id and no "
                "previous_response_id with it"
            )
            await self.refuse(delivery, ErrorInfo(code="user_error", message=message))
            return
        try:
            graph = await resolved(registered.graph, self._bus.agents)
        except UnknownAgent as unknown:
            await self.refuse(delivery, ErrorInfo(code="unknown_agent", message=str(unknown)))
            return
        started = RunStarted(
            graph=graph,
            input=[user_message(task.input)] if isinstance(task.input, str) else task.input,
            options=_options(task, registered.options),
            pool=registered.pool,
            context=task.context,
            key=delivery.headers.get(MSG_ID),
            is_text=isinstance(task.input, str),
        )
        run = run_of_task(delivery)
        crashpoint("harness.before_start")
        await self._append_first(
            delivery, run, self._bus.subjects.start(run, started.pool), started, "start"
        )
        crashpoint("harness.after_start")

    async def refuse(self, delivery: Delivery, error: ErrorInfo) -> None:
        """The task cannot be a run: its run consists of a ``done`` that says why."""
        run = run_of_task(delivery)
        done = RunDone(
            status="failed",
            agent=self._bus.subjects.parse_task(delivery.subject),
            turns=0,
            usage=TokenUsage(),
            error=error,
        )
        crashpoint("harness.before_refuse")
        await self._append_first(delivery, run, self._bus.subjects.done(run), done, "done0")
        crashpoint("harness.after_refuse")

    async def _append_first(
        self,
        delivery: Delivery,
        run: RunId,
        subject: str,
        message: RunStarted | RunDone,
        name: str,
    ) -> None:
        trace = delivery.headers.get(TRACEPARENT)
        after = 0
        while True:
            try:
                await self._bus.work_log.append(
                    run,
                    subject,
                    message,
                    after=after,
                    msg_id=f"{run}:{name}",
                    headers=caused_by(delivery.sequence, trace, delivery.deliveries),
                )
            except Conflict as conflict:
                if any(isinstance(it.event, RunStarted | RunDone) for it in conflict.news):
                    return  # the same task again: its run exists
                after = conflict.news[-1].sequence  # a cancel was quicker than we
            else:
                return


def run_of_task(delivery: Delivery) -> RunId:
    """The message id that the submitter chose, or the task's place in the log, names the run."""
    key = delivery.headers.get(MSG_ID)
    return run_id_of_key(key) if key else RunId(f"task-{delivery.sequence}")


def _options(task: Task, options: RunOptions) -> RunOptions:
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
    if task.session:
        changed["session"] = SessionUse(id=task.session, busy=task.session_busy)
    budget = smaller(task.budget, options.budget)
    if budget is not None:
        changed["budget"] = with_deadline(budget)
    if task.max_turns is not msgspec.UNSET:
        changed["max_turns"] = task.max_turns
    return msgspec.structs.replace(options, **changed) if changed else options
