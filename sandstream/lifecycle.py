"""Hooks: the user's own code at fixed points of a run. Subclass and override the methods you need.

``RunHooks`` covers every agent of a run and is passed to ``Runner.run(hooks=...)``; ``AgentHooks``
covers one agent and is passed to ``Agent(hooks=...)``. If both are given, they run concurrently.
An exception in a hook ends the run. A method that is not overridden costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from sandstream.run_context import AgentHookContext, RunContextWrapper, TContext

if TYPE_CHECKING:
    from sandstream.agent import Agent, Tool
    from sandstream.items import ModelResponse, TResponseInputItem

__all__ = ["AgentHooks", "AgentHooksBase", "RunHooks", "RunHooksBase"]

TAgent = TypeVar("TAgent", bound="Agent[Any]", default="Agent[Any]")


class RunHooksBase(Generic[TContext, TAgent]):
    """Hooks for all agents of a run."""

    async def on_llm_start(
        self,
        context: RunContextWrapper[TContext],
        agent: Agent[TContext],
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        """Called before the model is asked with exactly this input."""

    async def on_llm_end(
        self,
        context: RunContextWrapper[TContext],
        agent: Agent[TContext],
        response: ModelResponse,
    ) -> None:
        """Called after the model answered."""

    async def on_agent_start(self, context: AgentHookContext[TContext], agent: TAgent) -> None:
        """The agent starts: at the start of the run and after each handoff."""

    async def on_agent_end(
        self, context: AgentHookContext[TContext], agent: TAgent, output: Any
    ) -> None:
        """The agent produced the run's final output; output guardrails have not checked it yet."""

    async def on_handoff(
        self, context: RunContextWrapper[TContext], from_agent: TAgent, to_agent: TAgent
    ) -> None:
        """One agent hands the run to another."""

    async def on_tool_start(
        self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool
    ) -> None:
        """Called before a tool call; the context of a function tool is a ``ToolContext``."""

    async def on_tool_end(
        self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool, result: object
    ) -> None:
        """Called after a tool call; ``result`` is its output after the output guardrails."""


class AgentHooksBase(Generic[TContext, TAgent]):
    """Hooks for one agent."""

    async def on_start(self, context: AgentHookContext[TContext], agent: TAgent) -> None:
        """The agent starts: at the start of the run or after a handoff to it."""

    async def on_end(self, context: AgentHookContext[TContext], agent: TAgent, output: Any) -> None:
        """The agent produced the run's final output; output guardrails have not checked it yet."""

    async def on_handoff(
        self, context: RunContextWrapper[TContext], agent: TAgent, source: TAgent
    ) -> None:
        """The agent of these hooks, ``source``, hands the run to ``agent``."""

    async def on_tool_start(
        self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool
    ) -> None:
        """Called before a tool call; the context of a function tool is a ``ToolContext``."""

    async def on_tool_end(
        self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool, result: object
    ) -> None:
        """Called after a tool call; ``result`` is its output after the output guardrails."""

    async def on_llm_start(
        self,
        context: RunContextWrapper[TContext],
        agent: Agent[TContext],
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        """Called before the model is asked with exactly this input."""

    async def on_llm_end(
        self,
        context: RunContextWrapper[TContext],
        agent: Agent[TContext],
        response: ModelResponse,
    ) -> None:
        """Called after the model answered."""


RunHooks = RunHooksBase[TContext, "Agent[Any]"]
AgentHooks = AgentHooksBase[TContext, "Agent[Any]"]
