"""Announces to the harness, before a call's result, that the tool host works on the call."""

from __future__ import annotations

from sandstream_actors.run.state import RunState
from sandstream_actors.tool_host.actor import TakenCall
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.wire.headers import TRACEPARENT
from sandstream_bus.wire.messages import CallFinished
from sandstream_bus.wire.trace_context import incoming

from sandstream._hosting.hosted_run import Host


async def say_early(host: Host, state: RunState, call: TakenCall, early: str) -> None:
    """Tell the harness that what waits for this call's beginning may go on. ``early`` is the name
    that the harness knows this word by; the call's own result follows later.
    """
    if early in state.results:
        return  # this is a redelivery
    trace = incoming()
    crashpoint("tools.before_early")
    await host.bus.work_log.send(
        host.bus.subjects.result(state.run, call.reply_pool),
        CallFinished(call=early, kind=call.kind, turn=call.turn),
        # one per request: after the loss of a server two hosts may have the same request; after a
        # move the harness asks again and needs a new announcement
        msg_id=f"{state.run}:{early}:{call.sequence}",
        headers={TRACEPARENT: trace.header} if trace is not None else None,
    )
    crashpoint("tools.after_early")
