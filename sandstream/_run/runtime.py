"""The runtime that the SDK's names use outside of a run (see ``_surface/runtime.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.run_view import RunView
from sandstream._run.call import RunCall
from sandstream._run.process import Process
from sandstream._surface.agent_graph import reach
from sandstream.agent import Agent
from sandstream.error_handlers import check_error_handlers
from sandstream.result import RunResult, RunResultStreaming
from sandstream.run_config import RunConfig
from sandstream.run_state import RunState


class OwnRuntime:
    """Runs agents in this process."""

    async def process(self) -> Process:
        return await Process.of_this_loop()

    async def run(self, agent: Agent[Any], input: Any, **options: Any) -> RunResult:
        return await _call(agent, input, stream=False, **options).run()

    def run_streamed(self, agent: Agent[Any], input: Any, **options: Any) -> RunResultStreaming:
        return _call(agent, input, stream=True, **options).run_streamed()

    def view(self, state: RunState[Any, Any]) -> RunView:
        config = RunConfig()
        found = reach(state.agent, config)
        view = HostedRun(found.own.agents, state.context, config, found=found).view()
        for past in state.record.log_of(state.record.run_id):
            view.feed(past.event, past.subject)
        return view


def _call(
    agent: Agent[Any],
    input: Any,
    *,
    run_config: RunConfig | Mapping[str, Any] | None = None,
    **options: Any,
) -> RunCall:
    return RunCall(
        agent,
        input,
        config=RunConfig.coerce(run_config),
        error_handlers=check_error_handlers(None),
        auto_previous_response_id=False,
        **options,
    )
