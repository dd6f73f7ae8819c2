"""An agent as a tool of another one: each call is a run of its own, below the caller's run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from sandstream.agent import Agent
from sandstream.run_config import RunConfig
from sandstream.tool import FunctionTool, ToolErrorFunction, default_tool_error_function


@dataclass
class AgentTool(FunctionTool):
    """What ``Agent.as_tool`` makes. The harness starts its run; code of the user's takes part only
    where it was given.
    """

    agent: Agent[Any] = field(kw_only=True)
    run_config: RunConfig | None = field(default=None, kw_only=True)
    max_turns: int | None = field(default=10, kw_only=True)
    run_hooks: Any | None = field(default=None, kw_only=True)
    session: Any | None = field(default=None, kw_only=True)
    previous_response_id: str | None = field(default=None, kw_only=True)
    conversation_id: str | None = field(default=None, kw_only=True)
    custom_output_extractor: Callable[[Any], Awaitable[str]] | None = field(
        default=None, kw_only=True
    )
    on_stream: Callable[[Any], Any] | None = field(default=None, kw_only=True)
    on_stream_max_pending_events: int | None = field(default=1024, kw_only=True)
    parameters: type[Any] | None = field(default=None, kw_only=True)
    input_builder: Callable[[Any], Any] | None = field(default=None, kw_only=True)
    include_input_schema: bool = field(default=False, kw_only=True)

    on_failure: ToolErrorFunction | None = field(default=default_tool_error_function, kw_only=True)
    """None: a failed run fails its caller's."""

    @property
    def makes_input(self) -> bool:
        """Does code of the user's take part in making the run's input?"""
        return self.parameters is not None or self.input_builder is not None

    def config_of(self, parent: RunConfig) -> RunConfig:
        """The settings of its runs: its own, or its caller's."""
        return self.run_config or parent


def agent_tool(agent: Agent[Any], **options: Any) -> AgentTool:
    raise NotImplementedError
