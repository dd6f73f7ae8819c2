"""Sends the calls and approval requests of a decision, and folds them without reading them back."""

from __future__ import annotations

import asyncio

from sandstream_bus.bus import Bus
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.wire.messages import ApprovalRequested, CallRequested

from sandstream_actors.run.headers import again, asking, following
from sandstream_actors.run.state import RunState

_IN_TURN = 8
"""More calls than this are sent together: that is quicker, but they do not name each other."""


async def dispatch(
    bus: Bus,
    state: RunState,
    calls: list[CallRequested],
    approvals: list[ApprovalRequested],
    delivery: Delivery,
) -> None:
    """Send calls to their actors and approval requests to people, and fold them."""
    if len(calls) <= _IN_TURN and not approvals:
        upto = await _in_turn(bus, state, calls, delivery)
    else:
        upto = await _together(bus, state, calls, approvals, delivery)
    if upto > state.last_seq:
        # read them back now, while they are the newest of the log: later, the events of all
        # other runs are in between
        state.fold(await bus.work_log.read_reaching(state.run, after=state.last_seq, upto=upto))


async def _in_turn(
    bus: Bus, state: RunState, calls: list[CallRequested], delivery: Delivery
) -> int:
    """Send a few calls, each with its predecessor, so that they need not be read back; return the
    last sequence.
    """
    last = state.last_seq
    for call in calls:
        subject = _subject_of(bus, state, call)
        sent = await bus.work_log.send_after(
            state.run,
            subject,
            call,
            after=last,
            msg_id=f"{state.run}:{call.call}{again(state)}",
            headers=asking(state, delivery, call.call),
        )
        if sent.after == state.last_seq and bus.log.has_proof:
            state.apply(sent.sequence, call, subject)
        last = max(last, sent.sequence)
    return last


async def _together(
    bus: Bus,
    state: RunState,
    calls: list[CallRequested],
    approvals: list[ApprovalRequested],
    delivery: Delivery,
) -> int:
    """Send many at once; return the last sequence."""
    headers = following(state, delivery)
    sent = await asyncio.gather(
        *(
            bus.work_log.send(
                _subject_of(bus, state, call),
                call,
                msg_id=f"{state.run}:{call.call}{again(state)}",
                headers=asking(state, delivery, call.call),
            )
            for call in calls
        ),
        *(
            bus.work_log.send(
                bus.subjects.approval_requested(state.run),
                approval,
                msg_id=f"{state.run}:{approval.call}:approval{_asked_again(state, approval)}",
                headers=headers,
            )
            for approval in approvals
        ),
    )
    return max(ack.seq for ack in sent)


def _subject_of(bus: Bus, state: RunState, call: CallRequested) -> str:
    if call.traits.is_child_run:
        return bus.subjects.child(state.run)
    if call.traits.uses_session:  # the session is where the run began
        assert state.started is not None
        first = state.started.graph.agents[state.started.graph.start]
        return bus.subjects.call(state.run, state.places.host_of(first.host))
    if not call.sandbox:
        return bus.subjects.call(state.run, state.host)
    opened = state.sandboxes.get(call.agent)
    if opened is not None:
        return bus.subjects.run_sandbox(state.run, opened.provider, opened.node)
    use = state.agents[call.agent].sandbox
    assert use is not None
    return bus.subjects.run_sandbox(state.run, use.spec.provider, use.spec.node)


def _asked_again(state: RunState, approval: ApprovalRequested) -> str:
    """An expired approval is requested again after a retry."""
    attempt = state.past.attempts[approval.call]
    return f":a{attempt}" if attempt else ""
