"""The client: submit tasks to deployed agents, follow, wait, cancel, list. Talks to the bus only.

Everything here can be done by any NATS client in any language; docs/wire.md shows how.
"""

from __future__ import annotations

import asyncio
import builtins
import uuid
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.log import Conflict, LogEvent
from sandstream_bus.messages import CancelRequested, LiveEvent, RunDone, RunReopened, Task
from sandstream_bus.parking import ParkedEntry
from sandstream_bus.specs import NO_JSON, Budget
from sandstream_bus.subjects import RunId, check_token, run_id_of_key

from sandstream.approvals import OpenApproval, decide, open_approvals, stage_input
from sandstream.connect import OpenBus, open_bus
from sandstream.exceptions import UserError
from sandstream.ids import new_run_id
from sandstream.run_options import compile_input
from sandstream.settings import Settings
from sandstream.summaries import RunSummary, list_runs, read_known, summarize
from sandstream.trace_parent import trace_headers
from sandstream.tracing.setup import reporter_here

_CANCEL_PATIENCE_S = 3.0


class RunNotFound(UserError):
    """There is no such run in the log."""

    code = "run_not_found"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no run {run_id!r}; `sandstream runs` lists those there are")


class Client:
    """A connection for people and programs that use runs. Use it with ``async with``."""

    def __init__(self, opened: OpenBus) -> None:
        self._opened = opened
        self.bus: Bus = opened.bus

    @classmethod
    async def connect(cls, settings: Settings | None = None) -> Client:
        """Connect to ``NATS_URL``, or to the private server."""
        client = cls(await open_bus(settings or Settings.from_env(), name="sandstream-client"))
        reporter_here().attach(client.bus)
        return client

    async def close(self) -> None:
        await reporter_here().detach(self.bus)
        await self._opened.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # --- starting ------------------------------------------------------------------------------

    async def submit(
        self,
        agent: str,
        input: str | list[dict[str, Any]],
        *,
        key: str | None = None,
        context: Mapping[str, Any] | None = None,
        max_turns: int | msgspec.UnsetType | None = msgspec.UNSET,
        stream: bool = False,
        group_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        session: str | None = None,
        session_busy: Literal["queue", "refuse"] = "queue",
        budget: Budget | None = None,
        approval_expires_s: float | None = None,
    ) -> RunId:
        """Publish a task; the run's id. With the same ``key`` it is the same run, however often.

        ``session`` is the conversation on the bus that the run continues. While another run has it
        this one waits for its turn, or is refused. ``budget`` is what it may use, at most what its
        worker allows; ``approval_expires_s`` how long its calls wait for a person.
        """
        if not agent:
            raise UserError("the agent's name must not be empty")
        run = run_id_of_key(key) if key else new_run_id()
        task = Task(
            input=input if isinstance(input, str) else compile_input(input),
            context=NO_JSON if context is None else _json(context, "context"),
            max_turns=max_turns,
            stream=stream,
            group_id=group_id,
            metadata=dict(metadata or {}),
            session=session,
            session_busy=session_busy,
            budget=budget,
            approval_expires_s=approval_expires_s,
        )
        crashpoint("client.before_submit")
        await self.bus.connection.publish(
            self.bus.subjects.task(agent),
            await self.bus.codec.encode_task(task),
            msg_id=key or run,
            headers=trace_headers(),
        )
        crashpoint("client.after_submit")
        return run

    async def agents(self) -> list[str]:
        """The names of all deployed agents."""
        return await self.bus.agents.names()

    # --- looking -------------------------------------------------------------------------------

    async def follow(
        self, run_id: str, *, after: int = 0, deltas: bool = False
    ) -> AsyncGenerator[LogEvent | LiveEvent, None]:
        """The run's events after a sequence: those stored, then live ones, up to its end."""
        run = RunId(check_token(run_id, "the run id"))
        async for event in self.bus.follow.run(run, after=after, deltas=deltas):
            yield event

    async def events(self, run_id: str, *, after: int = 0) -> list[LogEvent]:
        """The events that the run has now."""
        run = RunId(check_token(run_id, "the run id"))
        return await read_known(self.bus, self.bus.subjects.run_all(run), after=after)

    async def wait(self, run_id: str) -> RunDone:
        """Wait for the run's end."""
        return await self.bus.follow.done(RunId(check_token(run_id, "the run id")))

    async def get(self, run_id: str) -> RunSummary:
        """The run as it is now."""
        events = await self.events(run_id)
        if not events:
            raise RunNotFound(run_id)
        return summarize(RunId(run_id), events)

    async def list(self, *, limit: int = 50) -> list[RunSummary]:
        """The newest runs, newest first."""
        return await list_runs(self.bus, limit=limit)

    # --- people ----------------------------------------------------------------------------------

    async def approvals(self, *, limit: int = 100) -> builtins.list[OpenApproval]:
        """The calls of all runs that wait for a person, newest first."""
        return await open_approvals(self.bus, limit=limit)

    async def approve(
        self, run_id: str, call: str | None = None, *, always: bool = False, by: str = ""
    ) -> OpenApproval:
        """Allow a call of a run, or of a run below it. ``call`` (its id in the log, or the model's)
        may be left out if only one waits. ``always``: also later calls of this tool by this agent.
        """
        run = RunId(check_token(run_id, "the run id"))
        return await decide(self.bus, run, call, approve=True, always=always, by=by)

    async def reject(
        self,
        run_id: str,
        call: str | None = None,
        *,
        message: str | None = None,
        always: bool = False,
        by: str = "",
    ) -> OpenApproval:
        """Refuse a call, as :meth:`approve`; the model reads ``message``, or a default."""
        run = RunId(check_token(run_id, "the run id"))
        return await decide(
            self.bus, run, call, approve=False, always=always, by=by, message=message
        )

    async def send_input(
        self, run_id: str, input: str | builtins.list[dict[str, Any]], *, by: str = ""
    ) -> int:
        """Say more to a run under way: its next model call sees it. The input's sequence."""
        run = RunId(check_token(run_id, "the run id"))
        return await stage_input(self.bus, run, compile_input(input), by=by)

    # --- stopping ------------------------------------------------------------------------------

    async def cancel(
        self,
        run_id: str,
        *,
        mode: Literal["immediate", "after_turn"] = "immediate",
        reason: str = "",
    ) -> RunSummary:
        """Stop a run. Where no harness serves its pool any more, its end is written from here."""
        summary = await self.get(run_id)
        if summary.is_over:
            return summary
        run = RunId(run_id)
        crashpoint("client.before_cancel")
        await self.bus.log.send(
            self.bus.subjects.cancel(run),
            CancelRequested(mode=mode, reason=reason),
            msg_id=f"{run}:cancel:{mode}:{uuid.uuid4().hex}",  # it may be resumed, and again
        )
        crashpoint("client.after_cancel")
        if mode == "immediate":
            try:
                async with asyncio.timeout(_CANCEL_PATIENCE_S):
                    await self.bus.follow.done(run)
            except TimeoutError:
                if not await self._is_served(summary.pool):
                    await self._end(run, reason)
        return await self.get(run_id)

    async def _is_served(self, pool: str) -> bool:
        return await self.bus.presence.is_served(f"harness-{pool}")

    async def _end(self, run: RunId, reason: str) -> None:
        from sandstream_actors.harness.children import Children
        from sandstream_actors.harness.conversation import let_go
        from sandstream_actors.harness.ends import cancelled
        from sandstream_actors.run_state import RunState

        while True:
            state = RunState.of(run, await self.bus.log.read(run))
            if state.done is not None:
                return
            done = cancelled(state).done
            try:
                sequence = await self.bus.log.append(
                    run,
                    self.bus.subjects.done(run),
                    done,
                    after=state.last_seq,
                    msg_id=f"{run}:done{state.dones}",
                )
            except Conflict:
                continue
            state.apply(sequence, done)
            await let_go(self.bus, state, done)
            await Children(self.bus).close_tree(state)
            return

    # --- parked messages -----------------------------------------------------------------------

    async def parked(self) -> builtins.list[ParkedEntry]:
        """Messages that no worker could handle."""
        return await self.bus.parking.list()

    async def redrive(self, entry_id: str) -> int:
        """Have a parked message handled after all: its run, if it ended because of it, goes on.

        A run that goes on asks for all that it misses, so only other messages are published again.
        """
        entry = await self.bus.parking.get(entry_id)
        if entry is None:
            raise UserError(f"nothing is parked under {entry_id!r}; `sandstream parked` lists all")
        if ".run." in entry.parked.subject:
            run = self.bus.subjects.parse_run(entry.parked.subject).run
            reopened = await self._reopen(run, f"re-driven: {entry.parked.reason}")
            if reopened is not None:
                await self.bus.parking.drop(entry)
                return reopened
        return await self.bus.parking.redrive(entry)

    async def drop_parked(self, entry_id: str) -> None:
        """Forget a parked message."""
        entry = await self.bus.parking.get(entry_id)
        if entry is None:
            raise UserError(f"nothing is parked under {entry_id!r}; `sandstream parked` lists all")
        await self.bus.parking.drop(entry)

    async def _reopen(self, run: RunId, reason: str) -> int | None:
        events = await self.bus.log.read(run)
        summary = summarize(run, events)
        if summary.error is None or summary.error.code != "parked":
            return None
        return await self.bus.log.append(
            run,
            self.bus.subjects.turn(run, summary.pool),
            RunReopened(reason=reason),
            after=events[-1].sequence,
            msg_id=f"{run}:reopen{events[-1].sequence}",
        )


def _json(value: Any, what: str) -> Raw:
    try:
        return Raw(msgspec.json.encode(value))
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{what} must be JSON to cross the bus: {error}. Pass plain values, and let the tools "
            "look up the rest."
        ) from None
