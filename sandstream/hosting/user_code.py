"""The tool host's callables: runs the user's Python for a call and makes an outcome of whatever
happens.

Needs a :class:`HostedRun` for the run: the agents, the context and the settings as objects. Where
these come from is up to the caller: the process of ``Runner.run`` has them, a worker finds them by
the agent's name. Each kind of call has a module beside this one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from sandstream_actors.run_state import RunState
from sandstream_actors.state_cache import StateCache
from sandstream_bus.messages import CallFinished, CallRequested, ModelAnswered
from sandstream_bus.subjects import RunId

from sandstream.hosting.call_span import span_of_call
from sandstream.hosting.children import child_input, child_output, watch
from sandstream.hosting.endings import decide_stop, finish, handle_error, validate_output
from sandstream.hosting.guarding import guard
from sandstream.hosting.handoff import hand_off
from sandstream.hosting.hosted_run import HostedRun
from sandstream.hosting.outcomes import Outcome, encode, failure, finished
from sandstream.hosting.prepare import prepare
from sandstream.hosting.review import outside_hook, reject, review
from sandstream.hosting.sessions import history, save
from sandstream.hosting.tools import call_tool
from sandstream.run_view import usage_of

FindRun = Callable[[RunId, StateCache], Awaitable[HostedRun]]
AskHostedModel = Callable[[HostedRun, RunState, CallRequested], Awaitable[ModelAnswered]]


class UserCode:
    """Dispatches calls by kind."""

    def __init__(self, find_run: FindRun, ask_model: AskHostedModel) -> None:
        self._find_run = find_run
        self._ask_model = ask_model

    async def admit(self, run: RunId, states: StateCache) -> None:
        await self._find_run(run, states)

    async def invoke(
        self, run: RunId, call: CallRequested, states: StateCache
    ) -> CallFinished | ModelAnswered:
        hosted = await self._find_run(run, states)
        # outside of the try: that the log cannot be read now is no outcome of the user's code
        state = None if call.kind == "tool" else await states.load(run)
        async with span_of_call(hosted, run, call):
            try:
                return await self._outcome(hosted, run, call, states, state)
            except Exception as error:  # noqa: BLE001  what user code raises is the call's outcome
                return failure(hosted, call, error)

    async def _outcome(
        self,
        hosted: HostedRun,
        run: RunId,
        call: CallRequested,
        states: StateCache,
        state: RunState | None,
    ) -> CallFinished | ModelAnswered:
        if state is None:
            return await call_tool(hosted, call, run, states)
        if call.kind == "model":
            hosted.context.usage = usage_of(call.usage)
            if state.prepared is None:
                state.prepared = await prepare(hosted, state, call, states)
            return await self._ask_model(hosted, state, call)
        result = await _HOST_CALLS[call.kind](hosted, state, call, states)
        if isinstance(result, Outcome):
            return finished(call, output=encode(result.value), **result.more)
        return finished(call, output=encode(result))


_HostCall = Callable[[HostedRun, RunState, CallRequested, StateCache], Awaitable[Any]]
_HOST_CALLS: dict[str, _HostCall] = {
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
"""What the tool host can be asked, besides tools and models. The result is the struct that the
message's kind demands, or an :class:`Outcome` with more fields of the answer.
"""
