"""The calls of a model's answer: what is asked for each, what came back, what a person decided.

The part of a run's state that answers questions about calls. Pure, as the rest of it.
"""

from __future__ import annotations

from typing import Literal

from sandstream_bus.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    ChildWaiting,
    Reviewed,
)
from sandstream_bus.specs import AgentSpec, HandoffSpec, RunOptions, ToolSpec

from sandstream_actors.call_results import child_result, rejected_result
from sandstream_actors.output_items import AnswerView, ToolCall

Gate = Literal["free", "wait", "rejected"]


class AnswerCalls:
    """What is known of the calls of the last answer."""

    turn: int

    def __init__(self) -> None:
        self.agents: dict[str, AgentSpec] = {}
        self.agent_name = ""
        self.answer: AnswerView | None = None
        """The last answer. What it asks for is in ``asked`` and ``results``."""
        self.asked: dict[str, CallRequested] = {}
        self.results: dict[str, CallFinished] = {}
        self.disabled_tools: set[str] = set()
        """Tools that the last answer could not use."""
        self.listed_tools: dict[str, ToolSpec] = {}
        """Tools that were offered for the last answer only."""
        self.reviewed: Reviewed | None = None
        self.requested: dict[str, ApprovalRequested] = {}
        """Calls of this turn for which a person was asked."""
        self.decided: dict[str, ApprovalDecided] = {}
        self.sticky: dict[tuple[str, str], ApprovalDecided] = {}
        """Answers that hold for an agent's later calls of a tool."""
        self.child_waits: dict[str, ChildWaiting] = {}
        """Calls whose child runs wait for a person."""

    @property
    def options(self) -> RunOptions:
        raise NotImplementedError

    @property
    def agent(self) -> AgentSpec:
        return self.agents[self.agent_name]

    def tool(self, name: str) -> ToolSpec | None:
        """A tool of the current agent, as it was offered for the last answer."""
        agent = self.agents.get(self.agent_name)
        own = next((tool for tool in agent.tools if tool.name == name), None) if agent else None
        return own or self.listed_tools.get(name)

    def handoff(self, call: ToolCall) -> HandoffSpec | None:
        """The handoff that a call asks for; a handoff goes before a tool of its name."""
        agent = self.agents.get(self.agent_name)
        if agent is None or call.is_custom or call.name in self.disabled_tools:
            return None
        return next((it for it in agent.handoffs if it.name == call.name), None)

    @property
    def tool_calls(self) -> list[ToolCall]:
        calls = self.answer.tool_calls if self.answer else []
        return [call for call in calls if self.handoff(call) is None]

    @property
    def handoff_calls(self) -> list[ToolCall]:
        calls = self.answer.tool_calls if self.answer else []
        return [call for call in calls if self.handoff(call) is not None]

    def gate(self, call: ToolCall) -> Gate:
        """May the call be made?"""
        decision = self.decision(call)
        if decision is not None:
            return "free" if decision.approve else "rejected"
        if self.reviewed is not None and call.id in self.reviewed.outputs:
            return "rejected"
        return "wait" if self.needs_approval(call) else "free"

    def needs_approval(self, call: ToolCall) -> bool:
        tool = self.tool(call.name)
        if tool is None or tool.approval == "never":
            return False
        if tool.approval == "always":
            return True
        return self.reviewed is None or call.id in self.reviewed.needs_approval

    def decision(self, call: ToolCall) -> ApprovalDecided | None:
        """A person's answer: for this call, or else for all of this tool's."""
        own = self.decided.get(call.id)
        tool = self.tool(call.name)
        if own is not None or tool is None or not self.needs_approval(call):
            return own
        if tool.approval == "ask_host" and self.reviewed is None:
            return None  # not known yet whether anybody must be asked
        return self.sticky.get((self.agent_name, call.name))

    def open_approvals(self) -> list[ApprovalRequested]:
        """What people are asked and have not answered, child runs included."""
        calls = {call.id: call for call in self.tool_calls}
        own = [
            it
            for name, it in self.requested.items()
            if name in calls and self.gate(calls[name]) == "wait"
        ]
        nested = [
            it
            for call, wait in self.child_waits.items()
            if call not in self.results
            for it in wait.approvals
        ]
        return own + nested

    def settled(self, call: ToolCall) -> CallFinished | None:
        """The outcome of a call as the model will see it; None while something is missing."""
        if self.gate(call) == "rejected":
            return rejected_result(self, call)
        result = self.results.get(call.id)
        tool = self.tool(call.name)
        if result is not None and tool is not None and tool.child is not None:
            result = child_result(self, call, tool.child, result)
        if result is None:
            return None
        if self.has_outside_hook(tool, "tool_end") and f"{call.id}-end" not in self.results:
            return None
        return result

    def has_outside_hook(self, tool: ToolSpec | None, point: str) -> bool:
        """Does a hook want to see a call that the tool host does not make itself?"""
        outside = tool is not None and (tool.sandbox or tool.child is not None)
        return outside and point in self.agent.hooks  # an agent has the tool, so there is one

    def open_tool_calls(self) -> list[ToolCall]:
        """Tool calls of the last answer that have no outcome yet."""
        return [call for call in self.tool_calls if self.settled(call) is None]

    def open_children(self) -> list[CallRequested]:
        """Child runs that were started and have not ended."""
        return [
            it for it in self.asked.values() if it.kind == "child" and it.call not in self.results
        ]
