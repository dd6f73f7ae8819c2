"""Input guardrails of a run: those of its first agent and those of its settings."""

from __future__ import annotations

from typing import Any

import msgspec
from sandstream_actors.run_state import RunState
from sandstream_actors.state_cache import StateCache
from sandstream_bus.messages import CallRequested

from sandstream.guardrail import InputGuardrailResult
from sandstream.hosting.guard_records import records_of
from sandstream.hosting.guards import run_input_guardrails
from sandstream.hosting.hosted_run import HostedRun
from sandstream.hosting.outcomes import CallFailed, Outcome
from sandstream.items import TResponseInputItem
from sandstream.run_view import usage_of


async def guard(
    hosted: HostedRun, state: RunState, call: CallRequested, states: StateCache
) -> Outcome:
    """Ask the guardrails of one kind: ``blocking`` before the first turn, ``parallel`` beside it;
    or all of them about input that came later (``staged``).

    Raises:
        CallFailed: if one trips, raises or takes too long.
    """
    agent = hosted.agent(call.agent)
    is_staged = call.name == "staged"
    is_parallel = call.name == "parallel"
    every = [*agent.input_guardrails, *(hosted.config.input_guardrails or [])]
    guardrails = [it for it in every if is_staged or bool(it.run_in_parallel) == is_parallel]
    hosted.context.usage = usage_of(call.usage)
    results: list[InputGuardrailResult] = []
    hosted.guardrails[call.call] = results
    try:
        await run_input_guardrails(
            guardrails,
            hosted.context,
            agent,
            _staged(state, call) if is_staged else _input(state),
            hosted.config.guardrail_timeout,
            results=results,
        )
    except Exception as error:
        raise CallFailed(error, guardrails=records_of(results, call.agent)) from error
    return Outcome(None, {"guardrails": records_of(results, call.agent)})


def _staged(state: RunState, call: CallRequested) -> list[TResponseInputItem]:
    upto = int(call.call.rpartition("-")[2])
    return [
        msgspec.json.decode(item)
        for sequence, items in state.staged
        if sequence <= upto
        for item in items
    ]


def _input(state: RunState) -> str | list[TResponseInputItem]:
    """What the caller gave; with the history, if the run continues a conversation.

    A text stays one only where the run is not streamed, as guardrails have always had it.
    """
    assert state.started is not None
    items: list[Any] = [msgspec.json.decode(item) for item in state.input]
    history: list[Any] = [msgspec.json.decode(item) for item in state.history or []]
    options = state.options
    if state.started.is_text and options.session is None and not options.stream:
        text: str = items[0]["content"]
        return text
    return history + items
