"""The turn at work: start its run, stop it, and record its end with a checkpoint."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import msgspec
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.logs.runs import Conflict
from sandstream_bus.wire.messages import CancelRequested, ErrorInfo, RunDone, RunStarted
from sandstream_bus.wire.model_records import TokenUsage
from sandstream_bus.wire.sessions import ActiveTurn, SessionState, SessionTurn
from sandstream_bus.wire.specs import RunOptions, SessionUse
from sandstream_bus.wire.subjects import RunId, session_conversation

from sandstream_actors.run.budgets import with_deadline
from sandstream_actors.run.conversation import let_go
from sandstream_actors.run.deployed import UnknownAgent
from sandstream_actors.run.output_items import user_message
from sandstream_actors.run.state import RunState
from sandstream_actors.sessions.changes import Change, replace
from sandstream_actors.sessions.workspaces import (
    WorkspaceFailed,
    Workspaces,
    deployed,
    use_of,
    with_use,
)

logger = logging.getLogger(__name__)

_SAID_CHARS = 500


class Turns:
    """Works on the active turn of a session."""

    def __init__(self, bus: Bus, workspaces: Workspaces) -> None:
        self._bus = bus
        self._workspaces = workspaces

    async def work(self, state: SessionState) -> Change | None:
        """Do what the turn needs now; None: its run is at work."""
        active = state.active
        assert active is not None
        run = RunId(active.run)
        ended = await self._bus.log.last(self._bus.subjects.done(run))
        if ended is not None and isinstance(ended.event, RunDone):
            return await self._record(state, active, ended.event, ended.stored.time)
        if active.interrupted:
            crashpoint("sessions.before_interrupt")
            await self._bus.work_log.send(
                self._bus.subjects.cancel(run),
                CancelRequested(reason=active.reason or "interrupted"),
                msg_id=f"{run}:interrupt",
            )
            crashpoint("sessions.after_interrupt")
        if await self._bus.log.first_subject(self._bus.subjects.start(run, "*")) is None:
            await self._start(state, active)
            return await self._unserved(state, active)
        return None

    async def _unserved(self, state: SessionState, active: ActiveTurn) -> Change | None:
        """Tell people if the run waits for a sandbox actor that is not there."""
        trouble = await self._workspaces.unserved(state.workspace) if state.workspace else ""
        if not trouble:
            return None

        def change(now: SessionState) -> SessionState | None:
            return replace(now, trouble=trouble) if now.active == active else None

        return change

    # --- the start -----------------------------------------------------------------------------

    async def _start(self, state: SessionState, active: ActiveTurn) -> None:
        run = RunId(active.run)
        first = await self._first_event(state, active)
        subjects = self._bus.subjects
        subject, name = subjects.done(run), "done0"
        if isinstance(first, RunStarted):
            subject, name = subjects.start(run, first.pool), "start"
        after = 0
        crashpoint("sessions.before_start")
        while True:
            try:
                await self._bus.work_log.append(
                    run,
                    subject,
                    first,
                    after=after,
                    msg_id=f"{run}:{name}",
                )
            except Conflict as conflict:
                if any(isinstance(it.event, RunStarted | RunDone) for it in conflict.news):
                    return  # another replica has started it
                if conflict.news:
                    after = conflict.news[-1].sequence  # the interrupt was quicker
            else:
                break
        crashpoint("sessions.after_start")

    async def _first_event(self, state: SessionState, active: ActiveTurn) -> RunStarted | RunDone:
        """The start of the run, or its end if it cannot start."""
        try:
            registered, graph = await deployed(self._bus, state.agent)
        except UnknownAgent as unknown:
            error = ErrorInfo(code="unknown_agent", message=str(unknown))
            return RunDone(
                status="failed", agent=state.agent, turns=0, usage=TokenUsage(), error=error
            )
        if state.workspace is not None:
            graph = with_use(graph, use_of(graph, state, state.workspace))
        return RunStarted(
            graph=graph,
            input=[user_message(it.input) for it in active.messages],
            is_text=len(active.messages) == 1,
            options=_options(registered.options, state, active),
            pool=registered.pool,
            context=state.context,
            key=active.run,
        )

    # --- the end -------------------------------------------------------------------------------

    async def _record(
        self, state: SessionState, active: ActiveTurn, done: RunDone, ended: str
    ) -> Change:
        """Write the record of the turn. If another replica has, its record counts."""
        record = await self._bus.sessions.turn(state.session, active.number)
        if record is None:
            crashpoint("sessions.before_record")
            items = await self._items(state, active, done)
            record = SessionTurn(
                number=active.number,
                after=state.turn,
                run=active.run,
                status=done.status,
                input=active.messages,
                said=_said(done),
                items=items,
                usage=done.usage,
                error=done.error,
                ended=ended or datetime.now(UTC).isoformat(),
            )
            record = await self._saved(state, active, done, record)
            await self._bus.sessions.record(state.session, record)
            crashpoint("sessions.after_record")
            record = await self._bus.sessions.turn(state.session, active.number) or record
        return _finished(record)

    async def _items(self, state: SessionState, active: ActiveTurn, done: RunDone) -> int:
        """The length of the history after the run."""
        name = session_conversation(state.session)
        conversation = await self._bus.conversations.read(name)
        if conversation.place_of(active.run) is not None:  # a process other than a harness ended it
            run = RunId(active.run)
            await let_go(self._bus, RunState.of(run, await self._bus.log.read(run)), done)
            conversation = await self._bus.conversations.read(name)
        return len(conversation.history)

    async def _saved(
        self, state: SessionState, active: ActiveTurn, done: RunDone, record: SessionTurn
    ) -> SessionTurn:
        """The record with a checkpoint of the workspace; or with the reason why there is none."""
        space = state.workspace
        if space is None:
            return record
        op = f"t{active.number}"
        try:
            if active.interrupted or done.status == "cancelled":
                await self._workspaces.end_commands(state.session, space, f"{op}-kill")
            crashpoint("sessions.before_checkpoint")
            tree = await self._workspaces.checkpoint(state.session, space, f"{op}-save")
        except WorkspaceFailed as failed:
            logger.warning("a turn of session %s has no checkpoint: %s", state.session, failed)
            return replace(record, provider=space.provider, unsaved=str(failed))
        crashpoint("sessions.after_checkpoint")
        return replace(record, provider=space.provider, tree=tree)


def _options(options: RunOptions, state: SessionState, active: ActiveTurn) -> RunOptions:
    return replace(
        options,
        stream=True,
        session=SessionUse(id=session_conversation(state.session)),
        group_id=options.group_id or state.session,
        metadata={**options.metadata, "session": state.session, "turn": active.number},
        budget=with_deadline(options.budget) if options.budget is not None else None,
    )


def _finished(record: SessionTurn) -> Change:
    def change(state: SessionState) -> SessionState | None:
        active, space = state.active, state.workspace
        if active is None or active.number != record.number:
            return None
        if space is not None and record.tree:
            space = replace(space, tree=record.tree)
        return replace(
            state,
            active=None,
            turn=record.number,
            status=record.status,
            said=record.said,
            usage=state.usage.plus(record.usage),
            workspace=space,
            changed=record.ended,
            trouble=record.unsaved and f"the files were not saved: {record.unsaved}",
        )

    return change


def _said(done: RunDone) -> str:
    """The beginning of the answer, or of the error, in one line."""
    if done.error is not None:
        return done.error.message[:_SAID_CHARS]
    return " ".join(_text(done.output).split())[:_SAID_CHARS]


def _text(output: Raw) -> str:
    if not output:
        return ""
    value = msgspec.json.decode(output)
    return value if isinstance(value, str) else bytes(output).decode()
