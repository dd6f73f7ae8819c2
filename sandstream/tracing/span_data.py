"""The data of spans: one class for each kind. ``export()`` returns what exporters send."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandstream.items import TResponseInputItem


class SpanData(abc.ABC):
    """The data of a span."""

    @property
    @abc.abstractmethod
    def type(self) -> str:
        """The kind of span."""

    @abc.abstractmethod
    def export(self) -> dict[str, Any]:
        """As plain data."""


class AgentSpanData(SpanData):
    """An agent's work.

    Args:
        name: The agent.
        handoffs: The agents that it can hand over to.
        tools: The names of its tools.
        output_type: The type of its output.
        metadata: Additional data for processors in this process; it is not exported.
    """

    __slots__ = ("handoffs", "metadata", "name", "output_type", "tools")

    def __init__(
        self,
        name: str,
        handoffs: list[str] | None = None,
        tools: list[str] | None = None,
        output_type: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.handoffs = handoffs
        self.tools = tools
        self.output_type = output_type
        self.metadata = metadata

    @property
    def type(self) -> str:
        return "agent"

    def export(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "name": self.name,
            "handoffs": self.handoffs,
            "tools": self.tools,
            "output_type": self.output_type,
        }


class TaskSpanData(SpanData):
    """One call of the runner.

    Args:
        name: The name of the workflow.
        usage: The tokens of the whole run.
        metadata: Additional data for processors in this process; it is not exported.
    """

    __slots__ = ("metadata", "name", "usage")

    def __init__(
        self,
        name: str,
        usage: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.usage = usage
        self.metadata = metadata

    @property
    def type(self) -> str:
        return "task"

    def export(self) -> dict[str, Any]:
        return _as_custom(self.type, {"name": self.name}, self.usage)


class TurnSpanData(SpanData):
    """One turn of an agent: a model's answer and what follows from it.

    Args:
        turn: The number of the turn; the first is 1.
        agent_name: The agent that took the turn.
        usage: The tokens of the turn.
        metadata: Additional data for processors in this process; it is not exported.
    """

    __slots__ = ("agent_name", "metadata", "turn", "usage")

    def __init__(
        self,
        turn: int,
        agent_name: str,
        usage: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self.turn = turn
        self.agent_name = agent_name
        self.usage = usage
        self.metadata = metadata

    @property
    def type(self) -> str:
        return "turn"

    def export(self) -> dict[str, Any]:
        return _as_custom(self.type, {"turn": self.turn, "agent_name": self.agent_name}, self.usage)


def _as_custom(kind: str, data: dict[str, Any], usage: dict[str, Any] | None) -> dict[str, Any]:
    """Backends do not know tasks and turns, so they are exported as custom spans."""
    more = {} if usage is None else {"usage": usage}
    return {"type": "custom", "name": kind, "data": {"sdk_span_type": kind, **data, **more}}


class FunctionSpanData(SpanData):
    """A tool call.

    Args:
        name: The name of the tool.
        input: The arguments as JSON text; ``None`` if they may not be shown.
        output: What the tool returned; ``None`` if it may not be shown. Its ``str`` is exported.
        mcp_data: About the MCP server that the tool belongs to.
    """

    __slots__ = ("input", "mcp_data", "name", "output")

    def __init__(
        self,
        name: str,
        input: str | None,
        output: Any | None,
        mcp_data: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.input = input
        self.output = output
        self.mcp_data = mcp_data

    @property
    def type(self) -> str:
        return "function"

    def export(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "name": self.name,
            "input": self.input,
            "output": None if self.output is None else str(self.output),
            "mcp_data": self.mcp_data,
        }


class GenerationSpanData(SpanData):
    """A model call, with its whole input.

    Args:
        input: The messages for the model.
        output: The messages of the model.
        model: The name of the model.
        model_config: The settings of the call.
        usage: The tokens of the call.
    """

    __slots__ = ("input", "model", "model_config", "output", "usage")

    def __init__(
        self,
        input: Sequence[Mapping[str, Any]] | None = None,
        output: Sequence[Mapping[str, Any]] | None = None,
        model: str | None = None,
        model_config: Mapping[str, Any] | None = None,
        usage: dict[str, Any] | None = None,
    ) -> None:
        self.input = input
        self.output = output
        self.model = model
        self.model_config = model_config
        self.usage = usage

    @property
    def type(self) -> str:
        return "generation"

    def export(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "input": self.input,
            "output": self.output,
            "model": self.model,
            "model_config": self.model_config,
            "usage": self.usage,
        }


class ResponseSpanData(SpanData):
    """A response of the Responses API. Only its id is exported: the endpoint has the rest.

    Args:
        response: The response in the vendor's type; ``None`` if it may not be shown.
        input: The input of the call. It is not exported.
        usage: The tokens of the call.
    """

    __slots__ = ("input", "response", "response_id", "usage")

    def __init__(
        self,
        response: Any | None = None,
        input: str | list[TResponseInputItem] | None = None,
        usage: dict[str, Any] | None = None,
    ) -> None:
        self.response = response
        self.input = input
        self.usage = usage
        self.response_id: str | None = None
        """Used if the response itself may not be shown."""

    @property
    def type(self) -> str:
        return "response"

    def export(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "response_id": self.response_id if self.response is None else self.response.id,
            "usage": self.usage,
        }


class HandoffSpanData(SpanData):
    """A handoff from one agent to another.

    Args:
        from_agent: The agent that hands over.
        to_agent: The agent that continues.
    """

    __slots__ = ("from_agent", "to_agent")

    def __init__(self, from_agent: str | None, to_agent: str | None) -> None:
        self.from_agent = from_agent
        self.to_agent = to_agent

    @property
    def type(self) -> str:
        return "handoff"

    def export(self) -> dict[str, Any]:
        return {"type": self.type, "from_agent": self.from_agent, "to_agent": self.to_agent}


class CustomSpanData(SpanData):
    """Anything that a program measures.

    Args:
        name: What is measured.
        data: Any facts that can be JSON.
    """

    __slots__ = ("data", "name")

    def __init__(self, name: str, data: dict[str, Any]) -> None:
        self.name = name
        self.data = data

    @property
    def type(self) -> str:
        return "custom"

    def export(self) -> dict[str, Any]:
        return {"type": self.type, "name": self.name, "data": self.data}


class GuardrailSpanData(SpanData):
    """The check of a guardrail.

    Args:
        name: The guardrail.
        triggered: Whether it refused.
    """

    __slots__ = ("name", "triggered")

    def __init__(self, name: str, triggered: bool = False) -> None:
        self.name = name
        self.triggered = triggered

    @property
    def type(self) -> str:
        return "guardrail"

    def export(self) -> dict[str, Any]:
        return {"type": self.type, "name": self.name, "triggered": self.triggered}


class TranscriptionSpanData(SpanData):
    """Speech to text.

    Args:
        input: The audio as base64.
        input_format: The format of the audio.
        output: The text.
        model: The name of the model.
        model_config: The settings of the call.
    """

    __slots__ = ("input", "input_format", "model", "model_config", "output")

    def __init__(
        self,
        input: str | None = None,
        input_format: str | None = "pcm",
        output: str | None = None,
        model: str | None = None,
        model_config: Mapping[str, Any] | None = None,
    ) -> None:
        self.input = input
        self.input_format = input_format
        self.output = output
        self.model = model
        self.model_config = model_config

    @property
    def type(self) -> str:
        return "transcription"

    def export(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "input": {"data": self.input or "", "format": self.input_format},
            "output": self.output,
            "model": self.model,
            "model_config": self.model_config,
        }


class SpeechSpanData(SpanData):
    """Text to speech.

    Args:
        input: The text.
        output: The audio as base64.
        output_format: The format of the audio.
        model: The name of the model.
        model_config: The settings of the call.
        first_content_at: When the first audio arrived, in ISO 8601.
    """

    __slots__ = ("first_content_at", "input", "model", "model_config", "output", "output_format")

    def __init__(
        self,
        input: str | None = None,
        output: str | None = None,
        output_format: str | None = "pcm",
        model: str | None = None,
        model_config: Mapping[str, Any] | None = None,
        first_content_at: str | None = None,
    ) -> None:
        self.input = input
        self.output = output
        self.output_format = output_format
        self.model = model
        self.model_config = model_config
        self.first_content_at = first_content_at

    @property
    def type(self) -> str:
        return "speech"

    def export(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "input": self.input,
            "output": {"data": self.output or "", "format": self.output_format},
            "model": self.model,
            "model_config": self.model_config,
            "first_content_at": self.first_content_at,
        }


class SpeechGroupSpanData(SpanData):
    """Several pieces of speech that belong together.

    Args:
        input: The text of all pieces together.
    """

    __slots__ = ("input",)

    def __init__(self, input: str | None = None) -> None:
        self.input = input

    @property
    def type(self) -> str:
        return "speech_group"

    def export(self) -> dict[str, Any]:
        return {"type": self.type, "input": self.input}


class MCPListToolsSpanData(SpanData):
    """The listed tools of an MCP server.

    Args:
        server: The name of the server.
        result: The names of its tools.
    """

    __slots__ = ("result", "server")

    def __init__(self, server: str | None = None, result: list[str] | None = None) -> None:
        self.server = server
        self.result = result

    @property
    def type(self) -> str:
        return "mcp_tools"

    def export(self) -> dict[str, Any]:
        return {"type": self.type, "server": self.server, "result": self.result}
