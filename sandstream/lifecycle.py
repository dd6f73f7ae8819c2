"""Hooks: the user's own code at fixed points of a run. Subclass and override what is needed.

``RunHooks`` sees every agent of a run and is given to ``Runner.run(hooks=...)``; ``AgentHooks``
sees one agent and is given to ``Agent(hooks=...)``. Where both are given they run at the same time.
What a hook raises ends the run. A method that is not overridden costs nothing.
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
    """What happens in a run, whichever agent does it."""

    async def on_llm_start(
        self,
        context: RunContextWrapper[TContext],
        agent: Agent[TContext],
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        """The model is about to be asked with just this."""

    async def on_llm_end(
        self,
        context: RunContextWrapper[TContext],
        agent: Agent[TContext],
        response: ModelResponse,
    ) -> None:
        """The model has answered."""

    async def on_agent_start(self, context: AgentHookContext[TContext], agent: TAgent) -> None:
        """The agent takes over: at the start of the run and after each handoff."""

    async def on_agent_end(
        self, context: AgentHookContext[TContext], agent: TAgent, output: Any
    ) -> None:
        """The agent has the run's final output; output guardrails have not seen it yet."""

    async def on_handoff(
        self, context: RunContextWrapper[TContext], from_agent: TAgent, to_agent: TAgent
    ) -> None:
        """One agent hands the run to another."""

    async def on_tool_start(
        self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool
    ) -> None:
        """A tool is about to be called; the context of a function tool is a ``ToolContext``."""

    async def on_tool_end(
        self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool, result: object
    ) -> None:
        """A tool was called; ``result`` is what it returned, as output guardrails left it."""


class AgentHooksBase(Generic[TContext, TAgent]):
    """What happens to one agent."""

    async def on_start(self, context: AgentHookContext[TContext], agent: TAgent) -> None:
        """The agent takes over: at the start of the run or after a handoff to it."""

    async def on_end(self, context: AgentHookContext[TContext], agent: TAgent, output: Any) -> None:
        """The agent has the run's final output; output guardrails have not seen it yet."""

    async def on_handoff(
        self, context: RunContextWrapper[TContext], agent: TAgent, source: TAgent
    ) -> None:
        """The agent of these hooks, ``source``, hands the run to ``agent``."""

    async def on_tool_start(
        self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool
    ) -> None:
        """A tool is about to be called; the context of a function tool is a ``ToolContext``."""

    async def on_tool_end(
        self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool, result: object
    ) -> None:
        """A tool was called; ``result`` is what it returned, as output guardrails left it."""

    async def on_llm_start(
        self,
        context: RunContextWrapper[TContext],
        agent: Agent[TContext],
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        """The model is about to be asked with just this."""

    async def on_llm_end(
        self,
        context: RunContextWrapper[TContext],
        agent: Agent[TContext],
        response: ModelResponse,
    ) -> None:
        """The model has answered."""


RunHooks = RunHooksBase[TContext, "Agent[Any]"]
AgentHooks = AgentHooksBase[TContext, "Agent[Any]"]
