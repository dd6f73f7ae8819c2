"""The consequences of a run's end for the runs above and below it in its tree."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.wire.attempts import caused_by
from sandstream_bus.wire.messages import CallFinished, CancelRequested, ErrorInfo, Message, RunDone
from sandstream_bus.wire.specs import NO_JSON
from sandstream_bus.wire.subjects import RunId

from sandstream_actors.run.headers import trace_header
from sandstream_actors.run.state import RunState


class TreeEnds:
    """Cancels the open children of a run that has ended, and reports its end to its parent."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def close_tree(self, state: RunState) -> None:
        """The consequences of a run's end in the tree."""
        await self.cancel_open(state)
        await self.report_end(state)

    async def cancel_open(self, state: RunState) -> None:
        """Cancel the child runs that the ended run still waited for."""
        open_children = state.open_children()
        if not open_children:
            return
        crashpoint("harness.before_cancel_children")
        await asyncio.gather(
            *(
                self._bus.work_log.send(
                    self._bus.subjects.cancel(call.child),
                    CancelRequested(reason=f"its parent run {state.run} has ended"),
                    msg_id=f"{call.child}:cancel:immediate",
                )
                for call in open_children
            )
        )

    async def report_end(self, state: RunState) -> None:
        """A child run has ended: that is the outcome of its parent's call."""
        if state.started is None or state.started.parent is None or state.done is None:
            return
        crashpoint("harness.before_report")
        await self.send_up(state.places.parent_pool, state, outcome_of(state), "done")
        crashpoint("harness.after_report")

    async def send_up(self, pool: str, state: RunState, message: Message, name: str) -> None:
        """Send a message to the parent run as the (possibly early) outcome of its call."""
        assert state.started is not None and state.started.parent is not None
        parent = state.started.parent
        await self._bus.work_log.send_after(
            RunId(parent.run),
            self._bus.subjects.result(parent.run, pool),
            message,
            after=parent.asked_at,
            msg_id=f"{state.run}:up:{name}{state.dones}:{pool}",
            headers=caused_by(state.last_seq, trace_header(state)),
        )


def outcome_of(state: RunState) -> CallFinished:
    """The end of a child run as the outcome of its parent's call."""
    done = state.done
    parent = state.started.parent if state.started else None
    assert done is not None and parent is not None
    counted = state.past.counted  # the newest end
    return CallFinished(
        call=parent.call,
        kind="child",
        turn=parent.turn,
        output=_output(state, done) if done.status == "completed" else NO_JSON,
        error=None if done.status == "completed" else _error(done),
        usage=state.usage.minus(counted.usage),
        turns=state.tree_turns - counted.turns,
        tool_calls=state.tool_calls_made - counted.tool_calls,
        child=state.run,
        attempt=state.past.attempt,
    )


def _error(done: RunDone) -> ErrorInfo:
    """Why a child run failed. A cancelled child does not cancel its parent."""
    error = done.error or ErrorInfo(code=done.status, message=f"the run ended: {done.status}")
    if error.code != "cancelled":
        return error
    return msgspec.structs.replace(error, code="child_cancelled")


def _output(state: RunState, done: RunDone) -> Raw:
    """The final output; if it is empty and unchecked, the last message."""
    if bytes(done.output) not in (b"", b'""', b"null") or state.agent.checks_output:
        return done.output or Raw(b'""')
    for item in reversed(state.said):
        text = _text_of(item)
        if text:
            return Raw(msgspec.json.encode(text))
    return Raw(b'""')


class _Part(msgspec.Struct):
    text: str = ""


class _Said(msgspec.Struct):
    """A message of the model, or the output of a tool; other items have no text."""

    role: str = ""
    content: str | list[_Part] | None = None
    output: str = ""


_said = msgspec.json.Decoder(_Said).decode


def _text_of(item: Raw) -> str:
    try:
        said = _said(item)
    except msgspec.DecodeError:  # content parts of a tool, or an item of some other kind
        return ""
    if said.role == "user":  # more input that came meanwhile
        return ""
    if isinstance(said.content, list):
        return "".join(part.text for part in said.content)
    return said.content or said.output
