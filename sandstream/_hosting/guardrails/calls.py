"""Input guardrails of a run: those of its first agent and those of its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import msgspec
from sandstream_actors.run.call_results import looking_at
from sandstream_actors.run.state import RunState
from sandstream_actors.run.state_cache import States
from sandstream_actors.tool_host.actor import TakenCall
from sandstream_bus.wire.messages import CallRequested

from sandstream._hosting.early_results import say_early
from sandstream._hosting.guardrails.checks import run_input_guardrails
from sandstream._hosting.guardrails.records import records_of
from sandstream._hosting.hosted_run import Host, HostedRun
from sandstream._hosting.outcomes import CallFailed, Outcome
from sandstream._surface.task_ends import stop
from sandstream.guardrail import InputGuardrailResult
from sandstream.items import TResponseInputItem
from sandstream.usage import usage_of

HEAD_START_ROUNDS = 20
"""Rounds of the event loop that parallel guardrails get before the model is asked."""
HEAD_START_S = 0.002
"""Additional time, for instance for a thread. It delays the model's first answer."""


async def guard(hosted: HostedRun, state: RunState, call: TakenCall, states: States) -> Outcome:
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
    checking = run_input_guardrails(
        guardrails,
        hosted.context,
        agent,
        _staged(state, call) if is_staged else _input(state),
        hosted.config.guardrail_timeout,
        results=results,
    )
    try:
        if is_parallel and hosted.host is not None:
            await _with_head_start(checking, partial(_say_looking, hosted.host, state, call))
        else:
            await checking
    except Exception as error:
        raise CallFailed(error, guardrails=records_of(results, call.agent)) from error
    return Outcome(None, {"guardrails": records_of(results, call.agent)})


async def _with_head_start(
    checking: Coroutine[Any, Any, object], say_looking: Callable[[], Awaitable[None]]
) -> None:
    """Run the checks; if they take longer than the head start, announce it: the model is asked
    then.

    Guardrails that wait for nothing outside this process finish within a few rounds of the loop,
    however busy the machine is.
    """
    task = asyncio.ensure_future(checking)
    try:
        for _ in range(HEAD_START_ROUNDS):
            if task.done():
                break
            await asyncio.sleep(0)
        await asyncio.wait({task}, timeout=HEAD_START_S)
        if not task.done():
            await say_looking()
        await task
    finally:
        await stop([task])


async def _say_looking(host: Host, state: RunState, call: TakenCall) -> None:
    await say_early(host, state, call, looking_at(call.call))


def _staged(state: RunState, call: CallRequested) -> list[TResponseInputItem]:
    upto = int(call.call.rpartition("-")[2])
    return [
        msgspec.json.decode(item)
        for sequence, items in state.staged
        if sequence <= upto
        for item in items
    ]


def _input(state: RunState) -> str | list[TResponseInputItem]:
    """The caller's input, preceded by the history if the run continues a conversation.

    A text stays a text only if the run is not streamed; guardrails rely on that.
    """
    assert state.started is not None
    items: list[Any] = [msgspec.json.decode(item) for item in state.input]
    history: list[Any] = [msgspec.json.decode(item) for item in state.history or []]
    options = state.options
    if state.started.is_text and options.session is None and not options.stream:
        text: str = items[0]["content"]
        return text
    return history + items
