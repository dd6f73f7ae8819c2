"""Builds the items of a run from its log, with the agents and tools of this process."""

from __future__ import annotations

from typing import Any

import msgspec
from sandstream_actors.run.output_items import ToolCall
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.messages import ApprovalRequested, CallFinished
from sandstream_bus.wire.specs import AgentSpec

from sandstream._hosting.hosted_run import HostedRun
from sandstream.agent import Agent, Tool
from sandstream.items import (
    HandoffCallItem,
    MessageOutputItem,
    ReasoningItem,
    RunItem,
    ToolApprovalItem,
    ToolCallItem,
    ToolCallOutputItem,
    ToolOrigin,
    ToolOriginType,
)
from sandstream.tool import FunctionTool
from sandstream.tool_output import ToolOutputImage


class _Definition(msgspec.Struct):
    description: str | None = None


_definition = msgspec.json.Decoder(_Definition).decode


class ItemMaker:
    """Reads the run's state and never changes it."""

    def __init__(self, hosted: HostedRun, state: RunState) -> None:
        self._hosted = hosted
        self._state = state
        self._elsewhere: dict[str, Agent[Any]] = {}

    def agent(self, key: str, spec: AgentSpec | None = None) -> Agent[Any]:
        """The agent of a key; a stand-in with only the name, if the agent is in another process."""
        found = self._hosted.agents.get(key)
        if found is not None:
            return found
        spec = spec or self._state.agents.get(key)
        return self._elsewhere.setdefault(key, Agent(name=spec.name if spec else key))

    def of_answer(self, raw: dict[str, Any]) -> RunItem:
        """An item of the model's answer."""
        agent = self.agent(self._state.agent_name)
        kind = raw.get("type", "message")
        if kind == "message":
            return MessageOutputItem(agent, raw)
        if kind == "reasoning":
            return ReasoningItem(agent, raw)
        name = str(raw.get("name", ""))
        if kind != "function_call":
            return ToolCallItem(agent, raw)
        if self._state.handoff(ToolCall("", name, "", "")) is not None:
            return HandoffCallItem(agent, raw)
        tool = self._tool(name)
        title = tool.title if isinstance(tool, FunctionTool) else None
        return ToolCallItem(agent, raw, self._description(name, tool), title, _origin(tool))

    def of_outcome(self, call: ToolCall, result: CallFinished) -> ToolCallOutputItem:
        """The output item of a call."""
        wire = msgspec.json.decode(result.output)
        kind = "custom_tool_call_output" if call.is_custom else "function_call_output"
        raw = {"call_id": call.call_id, "output": wire, "type": kind}
        custom = msgspec.json.decode(result.custom_data) if result.custom_data else None
        values = self._hosted.values
        value = values[call.id] if call.id in values else _value_of(wire)
        agent = self.agent(self._state.agent_name)
        return ToolCallOutputItem(agent, raw, value, custom, _origin(self._tool(call.name)))

    def approval(self, call: ToolCall) -> ToolApprovalItem:
        """A call of this run that waits for a person."""
        answer = self._state.answer
        assert answer is not None
        output = [msgspec.json.decode(item) for item in answer.event.output]
        raw = next(item for item in output if item.get("call_id") == call.call_id)
        agent = self.agent(self._state.agent_name)
        origin = _origin(self._tool(call.name))
        run = self._state.run
        return ToolApprovalItem(agent, raw, tool_origin=origin, run_id=run, call=call.id)

    def nested_approval(self, request: ApprovalRequested) -> ToolApprovalItem:
        """A call of a child run that waits for a person."""
        kind = "custom_tool_call" if request.custom else "function_call"
        field = "input" if request.custom else "arguments"
        raw = {
            field: request.arguments,
            "call_id": request.call_id,
            "name": request.name,
            "type": kind,
        }
        agent = self._nested_agent(request)
        tool = next((tool for tool in agent.tools if tool.name == request.name), None)
        return ToolApprovalItem(
            agent, raw, tool_origin=_origin(tool), run_id=request.run, call=request.call
        )

    def _nested_agent(self, request: ApprovalRequested) -> Agent[Any]:
        """Two child runs may have agents with the same key: choose the one that has the tool."""
        circles = self._hosted.found.children.values() if self._hosted.found else ()
        found = [it.agents[request.agent] for it in circles if request.agent in it.agents]
        for agent in found:
            if any(tool.name == request.name for tool in agent.tools):
                return agent
        return found[0] if found else Agent(name=request.agent)

    def _tool(self, name: str) -> Tool | None:
        key = self._state.agent_name
        return self._hosted.tool(key, name) if key in self._hosted.agents else None

    def _description(self, name: str, tool: Tool | None) -> str | None:
        if tool is not None:
            return tool.description
        spec = self._state.tool(name)
        return _definition(spec.definition).description if spec is not None else None


def _origin(tool: Tool | None) -> ToolOrigin | None:
    if not isinstance(tool, FunctionTool):
        return None
    return tool.tool_origin or ToolOrigin(ToolOriginType.FUNCTION)


def _value_of(wire: Any) -> Any:
    """The output of another process's tool, from its wire form; an image becomes an object."""
    if isinstance(wire, list) and len(wire) == 1 and wire[0].get("type") == "input_image":
        fields = {name: wire[0].get(name) for name in ("image_url", "file_id", "detail")}
        return ToolOutputImage(**fields)
    return wire
