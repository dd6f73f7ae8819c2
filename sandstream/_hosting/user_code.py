"""The tool host's callables: runs the user's Python for a call and turns every ending into a
result.

Needs a :class:`HostedRun`: the agents, the context and the settings of the run as objects. The
caller provides it: the process of ``Runner.run`` has these objects, a worker finds them by the
agent's name. Each kind of call has a module beside this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sandstream_actors.run.state import RunState
from sandstream_actors.run.state_cache import States
from sandstream_actors.tool_host.actor import TakenCall
from sandstream_bus.wire.calls import CallKind
from sandstream_bus.wire.messages import CallFinished, CallRequested, ModelAnswered, Prepared
from sandstream_bus.wire.subjects import RunId

from sandstream._hosting.call_span import span_of_call
from sandstream._hosting.children import child_input, child_output, watch
from sandstream._hosting.guardrails.calls import guard
from sandstream._hosting.handoff import hand_off
from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.outcomes import Outcome, encode, failure, finished
from sandstream._hosting.run_ends import decide_stop, finish, handle_error, validate_output
from sandstream._hosting.sessions import history, save
from sandstream._hosting.tools.invocation import call_tool
from sandstream._hosting.tools.review import outside_hook, reject, review
from sandstream._hosting.turn_preparation import prepare
from sandstream.usage import usage_of

FindRun = Callable[[RunId, States], Awaitable[HostedRun]]
AskHostedModel = Callable[[HostedRun, RunState, Prepared, CallRequested], Awaitable[ModelAnswered]]


class UserCode:
    """Dispatches calls by kind."""

    def __init__(self, find_run: FindRun, ask_model: AskHostedModel) -> None:
        self._find_run = find_run
        self._ask_model = ask_model

    async def admit(self, run: RunId, states: States) -> None:
        await self._find_run(run, states)

    async def invoke(
        self, run: RunId, call: TakenCall, states: States
    ) -> CallFinished | ModelAnswered:
        hosted = await self._find_run(run, states)
        # outside of the try: a failure to read the log is not an outcome of the user's code
        state = None if call.traits.is_tool else await states.load(run)
        async with span_of_call(hosted, run, call):
            try:
                return await self._outcome(hosted, run, call, states, state)
            except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001  what it raises is the call's outcome
                return failure(hosted, run, call, error)

    async def _outcome(
        self,
        hosted: HostedRun,
        run: RunId,
        call: TakenCall,
        states: States,
        state: RunState | None,
    ) -> CallFinished | ModelAnswered:
        if state is None:
            return await call_tool(hosted, call, run, states)
        if call.traits.is_model:
            hosted.context.usage = usage_of(call.usage)
            prepared = state.prepared or await prepare(hosted, state, call, states)
            return await self._ask_model(hosted, state, prepared, call)
        result = await HOST_CALLS[call.kind](hosted, state, call, states)
        if isinstance(result, Outcome):
            return finished(call, output=encode(result.value), **result.more)
        return finished(call, output=encode(result))


_HostCall = Callable[[HostedRun, RunState, TakenCall, States], Awaitable[Any]]
HOST_CALLS: dict[CallKind, _HostCall] = {
    "prepare": prepare,
    "stop": decide_stop,
    "output": validate_output,
    "error": handle_error,
    "guard": guard,
    "review": review,
    "reject": reject,
    "handoff": hand_off,
    "finish": finish,
    "hook": outside_hook,
    "child_input": child_input,
    "child_output": child_output,
    "watch": watch,
    "history": history,
    "save": save,
}
"""Calls that the tool host handles besides tools and models. The result is the struct for the
call's kind, or an :class:`Outcome` with more fields of the answer.
"""
