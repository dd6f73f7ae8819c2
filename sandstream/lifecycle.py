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
    """Hooks for all agents of a run, for ``Runner.run(hooks=...)``. Override what you need.

    Example:
        class Costs(RunHooks[Any]):
            async def on_llm_end(self, context, agent, response):
                print(agent.name, response.usage.total_tokens)


        result = await Runner.run(agent, "hi", hooks=Costs())
    """

    async def on_llm_start(
        self,
        context: RunContextWrapper[TContext],
        agent: Agent[TContext],
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        """Called before the model is asked.

        Args:
            context: The context of the run.
            agent: The agent whose model is asked.
            system_prompt: The instructions for the model.
            input_items: The input for the model, exactly as it is sent.
        """

    async def on_llm_end(
        self,
        context: RunContextWrapper[TContext],
        agent: Agent[TContext],
        response: ModelResponse,
    ) -> None:
        """Called after the model answered.

        Args:
            context: The context of the run.
            agent: The agent whose model answered.
            response: The answer, with its usage.
        """

    async def on_agent_start(self, context: AgentHookContext[TContext], agent: TAgent) -> None:
        """Called when an agent starts: at the start of the run and after each handoff.

        Args:
            context: The context of the run, with the input of the turn.
            agent: The agent that starts.
        """

    async def on_agent_end(
        self, context: AgentHookContext[TContext], agent: TAgent, output: Any
    ) -> None:
        """Called when the agent has produced the run's final output, before its output guardrails.

        Args:
            context: The context of the run.
            agent: The agent that produced the output.
            output: The final output.
        """

    async def on_handoff(
        self, context: RunContextWrapper[TContext], from_agent: TAgent, to_agent: TAgent
    ) -> None:
        """Called when one agent hands the run to another.

        Args:
            context: The context of the run.
            from_agent: The agent that hands over.
            to_agent: The agent that continues.
        """

    async def on_tool_start(
        self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool
    ) -> None:
        """Called before a tool call.

        Args:
            context: The context of the run; for a function tool, a ``ToolContext``.
            agent: The agent that calls the tool.
            tool: The tool.
        """

    async def on_tool_end(
        self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool, result: object
    ) -> None:
        """Called after a tool call.

        Args:
            context: The context of the run; for a function tool, a ``ToolContext``.
            agent: The agent that called the tool.
            tool: The tool.
            result: The output of the call, after the tool's output guardrails.
        """


class AgentHooksBase(Generic[TContext, TAgent]):
    """Hooks for one agent, for ``Agent(hooks=...)``. Override what you need.

    Example:
        class Greeter(AgentHooks[Any]):
            async def on_start(self, context, agent):
                print(f"{agent.name} starts")


        agent = Agent(name="Assistant", hooks=Greeter())
    """

    async def on_start(self, context: AgentHookContext[TContext], agent: TAgent) -> None:
        """Called when this agent starts: at the start of the run or after a handoff to it.

        Args:
            context: The context of the run, with the input of the turn.
            agent: The agent that starts.
        """

    async def on_end(self, context: AgentHookContext[TContext], agent: TAgent, output: Any) -> None:
        """Called when the agent has produced the run's final output, before its output guardrails.

        Args:
            context: The context of the run.
            agent: The agent that produced the output.
            output: The final output.
        """

    async def on_handoff(
        self, context: RunContextWrapper[TContext], agent: TAgent, source: TAgent
    ) -> None:
        """Called when the agent of these hooks hands the run to another one.

        Args:
            context: The context of the run.
            agent: The agent that continues.
            source: The agent of these hooks, which hands over.
        """

    async def on_tool_start(
        self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool
    ) -> None:
        """Called before a tool call.

        Args:
            context: The context of the run; for a function tool, a ``ToolContext``.
            agent: The agent that calls the tool.
            tool: The tool.
        """

    async def on_tool_end(
        self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool, result: object
    ) -> None:
        """Called after a tool call.

        Args:
            context: The context of the run; for a function tool, a ``ToolContext``.
            agent: The agent that called the tool.
            tool: The tool.
            result: The output of the call, after the tool's output guardrails.
        """

    async def on_llm_start(
        self,
        context: RunContextWrapper[TContext],
        agent: Agent[TContext],
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        """Called before the model is asked.

        Args:
            context: The context of the run.
            agent: The agent whose model is asked.
            system_prompt: The instructions for the model.
            input_items: The input for the model, exactly as it is sent.
        """

    async def on_llm_end(
        self,
        context: RunContextWrapper[TContext],
        agent: Agent[TContext],
        response: ModelResponse,
    ) -> None:
        """Called after the model answered.

        Args:
            context: The context of the run.
            agent: The agent whose model answered.
            response: The answer, with its usage.
        """


RunHooks = RunHooksBase[TContext, "Agent[Any]"]
AgentHooks = AgentHooksBase[TContext, "Agent[Any]"]
