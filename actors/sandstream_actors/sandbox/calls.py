"""Calls of runs: open, checkpoint and close an agent's sandbox, and its built-in tools."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, assert_never

import msgspec
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.logs.sandboxes import SandboxMovedOn
from sandstream_bus.wire.calls import is_sandbox_kind
from sandstream_bus.wire.messages import CallFinished, CallRequested, ErrorInfo, RunStarted
from sandstream_bus.wire.sandboxes import (
    Checkpointed,
    MemoryMount,
    Opened,
    SandboxSpec,
    SandboxUse,
)
from sandstream_bus.wire.specs import NO_JSON, GraphSpec
from sandstream_bus.wire.subjects import RunId
from sandstream_providers.interface import BoxGone
from sandstream_providers.progress import listening

from sandstream_actors.run.retry import attempt_of, is_answered
from sandstream_actors.run.state import RunState
from sandstream_actors.sandbox.attempts import in_box
from sandstream_actors.sandbox.failures import Elsewhere, LetGo, Refused, Settled, failure_of
from sandstream_actors.sandbox.live import Live, restored_notice
from sandstream_actors.sandbox.live_output import live_output, live_progress
from sandstream_actors.sandbox.memory_sync import mount_of
from sandstream_actors.sandbox.operations import Tools, check_user, tool_in
from sandstream_actors.sandbox.stored_request import StoredRequest
from sandstream_actors.sandbox.tools.dispatch import ToolOutcome

logger = logging.getLogger(__name__)

_LOST = (
    "It is unknown whether this command took effect: its sandbox was lost while it ran. "
    "It was not repeated."
)
_LOG_LOST = (
    "The sandbox already has an outcome under the id of this call, from a request in a part of the "
    "log that was lost. That outcome does not belong to this call, and the command was not run "
    "again: look at the state of the sandbox before you go on."
)
_CLOSED = "The sandbox was closed while this command ran. It was not repeated."


class RunCalls:
    """Does one call of a run."""

    def __init__(self, bus: Bus, tools: Tools) -> None:
        self._bus = bus
        self._tools = tools

    async def do(
        self, run: RunId, call: CallRequested, *, sequence: int, fresh: bool, time_ns: int
    ) -> CallFinished:
        """The call's outcome. Failures are outcomes too; only errors of the bus and our bugs are
        raised.
        """
        try:
            if call.traits.is_tool:
                request = StoredRequest(sequence, time_ns)
                return await self._tool(run, call, request, fresh=fresh)
            with listening(live_progress(self._bus, run, call.call_id or call.call)):
                result = await self._lifecycle_call(run, call, sequence, fresh=fresh)
        except (Elsewhere, SandboxMovedOn, Settled):
            raise
        except Exception as error:
            failure = failure_of(error, call.kind)
            if failure is None:
                raise
            code = "workspace.lost" if failure.code == "workspace_lost" else failure.code
            data = {**failure.context, "op": failure.op, "sandbox": call.sandbox}
            info = ErrorInfo(
                code=f"sandbox.{code}" if "." not in code else code,
                message=failure.message,
                data=data,
            )
            return _finished(call, error=info)
        return _finished(call, output=Raw(msgspec.json.encode(result)))

    async def give_up(self, run: RunId, call: CallRequested) -> None:
        """The run was cancelled: end what the call started, without creating or waking a box."""
        if call.traits.result is Opened:
            # the run never gets the sandbox's name, so it would not close it
            try:
                await self._close(run, call, "its run was cancelled")
            except Refused:
                return  # not even begun
        elif call.traits.is_tool:
            box = await self._tools.lifecycle.box_of(call.sandbox)
            if box is not None:
                with contextlib.suppress(BoxGone):
                    await box.kill(op_of(run, call))

    async def is_settled(self, run: RunId, call: CallRequested) -> bool:
        """Does the call have a result, or is it no longer needed?"""
        state = RunState.of(run, await self._bus.log.read(run))
        if call.traits.closes_sandbox:
            return False  # repeating it has no effect, and a run that ended still needs it
        return state.done is not None or call.turn < state.turn or is_answered(state, call)

    async def _lifecycle_call(
        self, run: RunId, call: CallRequested, sequence: int, *, fresh: bool
    ) -> Any:
        lifecycle = self._tools.lifecycle
        kind = call.kind
        if not is_sandbox_kind(kind):
            raise Refused("unsupported", f"a sandbox cannot do a call of kind {kind!r}")
        match kind:
            case "open":
                use, spec, memory = await self._use_of(run, call)
                # another replica may have done it since the first check, and the run may have ended
                if not fresh and await self.is_settled(run, call):
                    raise Settled
                if use.checkpoint == "never" and await self._was_retried(run):
                    spec = msgspec.structs.replace(spec, renew=True)
                if spec.session:
                    return await lifecycle.open(call.sandbox, spec, memory, anew=True)
                if not use.owned:
                    return await lifecycle.open(call.sandbox, None, memory)
                return await lifecycle.open(call.sandbox, spec, memory, run=run)
            case "checkpoint":
                try:
                    live = await lifecycle.live(call.sandbox, run=run, asked_at=sequence)
                except LetGo as closed:
                    return Checkpointed(tree=closed.tree)
                return await lifecycle.checkpoint(live, reason=f"turn {call.turn}")
            case "close":
                return await self._close(run, call, "end of the run", asked_at=sequence)
            case _:
                assert_never(kind)

    async def _was_retried(self, run: RunId) -> bool:
        """Whether the run was retried: its end has deleted a sandbox without checkpoints."""
        return RunState.of(run, await self._bus.log.read(run)).past.retries > 0

    async def _close(
        self, run: RunId, call: CallRequested, reason: str, asked_at: int | None = None
    ) -> Checkpointed:
        use, _, _ = await self._use_of(run, call)
        if not use.owned or use.keep:
            return Checkpointed()
        return await self._tools.lifecycle.close(
            call.sandbox,
            checkpoint=use.checkpoint != "never",
            delete=use.checkpoint == "never",
            reason=reason,
            asked_at=asked_at,
        )

    async def _use_of(
        self, run: RunId, call: CallRequested
    ) -> tuple[SandboxUse, SandboxSpec, MemoryMount | None]:
        """How the run uses the sandbox, from the run's first event."""
        first = await self._bus.log.read_subject(self._bus.subjects.start(run, "*"), limit=1)
        started = first[0].event if first else None
        graph = started.graph if isinstance(started, RunStarted) else GraphSpec(start="", agents={})
        agent = graph.agents.get(call.agent)
        if agent is None or agent.sandbox is None:
            raise Refused(
                "workspace_start_error", f"run {run} has no agent {call.agent!r} with a sandbox"
            )
        memory = mount_of(agent, graph, call.sandbox)
        memories = [*agent.sandbox.spec.memories, *([memory] if memory is not None else [])]
        spec = msgspec.structs.replace(
            agent.sandbox.spec,
            run="" if agent.sandbox.spec.session else run,  # a session outlives its runs
            agent=call.agent,
            memories=memories,
        )
        return agent.sandbox, spec, memory

    # --- tools ---------------------------------------------------------------------------------

    async def _tool(
        self, run: RunId, call: CallRequested, request: StoredRequest, *, fresh: bool
    ) -> CallFinished:
        on_output = live_output(self._bus, run, call.call_id or call.call)

        async def work(live: Live) -> CallFinished:
            first = await live.box.first_request(op_of(run, call), request.text)
            if await request.is_foreign(first, self._bus):
                logger.warning(
                    "sandbox %s knows a call that the log does not: run %s, call %s",
                    *(call.sandbox, run, call.call),
                    extra={"request": first},
                )
                return _told(call, _LOG_LOST, "log_lost")
            check_user(call.user, self._tools)
            outcome = await tool_in(
                live,
                call.name,
                call.arguments,
                cwd=call.cwd,
                op=op_of(run, call),
                on_output=on_output,
                user=call.user,
            )
            return await self._outcome(call, live, outcome)

        def lost(live: Live) -> CallFinished:
            # the replica that restored it may have died before it reported that
            live.notice = live.notice or restored_notice(live.record.reason)
            return _told(call, _noticed(live, _LOST), "outcome_unknown")

        return await in_box(
            self._tools.lifecycle,
            call.sandbox,
            work,
            run=run,
            sequence=request.sequence,
            fresh=fresh,
            when_lost=lost,
            when_closed=lambda: _told(call, _CLOSED, "outcome_unknown"),
        )

    async def _outcome(self, call: CallRequested, live: Live, outcome: ToolOutcome) -> CallFinished:
        output = outcome.output
        if live.notice and isinstance(output, str):
            output = _noticed(live, output)
        digest, size = "", 0
        if outcome.full is not None:
            digest, size = await self._bus.objects.put(outcome.full), len(outcome.full)
        error = None
        if outcome.error is not None:
            text = output if isinstance(output, str) else outcome.error
            error = ErrorInfo(code=outcome.error, message=text)
        return msgspec.structs.replace(
            _finished(call, output=Raw(msgspec.json.encode(output)), error=error),
            full_output=digest,
            full_output_bytes=size,
        )


def op_of(run: RunId, call: CallRequested) -> str:
    """The operation's id: the same for every delivery of the call, in every replica."""
    return f"{run}-{attempt_of(call)}"


def _noticed(live: Live, text: str) -> str:
    notice, live.notice = live.notice, ""
    return f"{notice}\n\n{text}" if notice else text


def _told(call: CallRequested, text: str, code: str) -> CallFinished:
    """A failure that the model reads."""
    info = ErrorInfo(code=code, message=text)
    return _finished(call, output=Raw(msgspec.json.encode(text)), error=info)


def _finished(
    call: CallRequested, *, output: Raw = NO_JSON, error: ErrorInfo | None = None
) -> CallFinished:
    return CallFinished(call=call.call, kind=call.kind, turn=call.turn, output=output, error=error)
