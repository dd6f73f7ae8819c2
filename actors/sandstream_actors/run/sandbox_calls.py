"""The calls by which a run uses the sandboxes of its agents. Pure."""

from __future__ import annotations

from sandstream_bus.wire.messages import CallKind, CallRequested

from sandstream_actors.run.state import RunState


def closing_calls(state: RunState) -> list[CallRequested]:
    """The calls that close the run's open sandboxes."""
    return [
        sandbox_request(
            state,
            name,
            "close",
            f"t{state.turn}-close{state.closings or ''}-{opened.sandbox[-8:]}",
            state.turn,
        )
        for name, _, opened in state.to_close()
    ]


def sandbox_request(
    state: RunState, agent: str, kind: CallKind, call: str, turn: int
) -> CallRequested:
    return CallRequested(
        call=call,
        kind=kind,
        turn=turn,
        agent=agent,
        reply_pool=state.pool,
        sandbox=state.sandbox_id(state.agents[agent]),
    )
