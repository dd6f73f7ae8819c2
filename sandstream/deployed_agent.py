"""A stand-in for an agent of another worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandstream.agent import Agent
from sandstream.exceptions import UserError
from sandstream.tool import FunctionTool


@dataclass
class DeployedAgent(Agent[Any]):
    """Use it as a handoff or, with :meth:`as_tool`, as a tool: by name, wherever it runs.

    When a run starts, the agent that is registered under this name replaces it, with its own tools,
    model, harness pool and worker.

    Example:
        billing = DeployedAgent(name="billing")  # registered by another team's worker
        triage = Agent(name="triage", handoffs=[billing])
    """

    def as_tool(self, *arguments: Any, **options: Any) -> FunctionTool:
        """The agent as a tool. Its worker hosts the run and cannot use objects of this process.

        Args:
            arguments: The name and the description of the tool, as for :meth:`Agent.as_tool`.
            options: The other arguments of :meth:`Agent.as_tool`, except ``hooks`` and a session
                that is not a :class:`BusSession`.

        Raises:
            UserError: An option is an object that the agent's worker cannot use.
        """
        from sandstream.agent_tool import AgentTool
        from sandstream.memory.bus_session import BusSession

        tool = super().as_tool(*arguments, **options)
        assert isinstance(tool, AgentTool)
        if tool.run_hooks is not None:
            raise UserError(
                f"the tool {tool.name!r} runs the deployed agent {self.name!r} in its own worker, "
                "which cannot call hooks of this process; give the deployed agent its own hooks"
            )
        if tool.session is not None and not isinstance(tool.session, BusSession):
            raise UserError(
                f"the tool {tool.name!r} runs the deployed agent {self.name!r} in its own worker, "
                "which cannot use a session of this process; give it a BusSession"
            )
        return tool
