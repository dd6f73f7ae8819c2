"""The items that a run produces. Each has its agent and its raw item."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sandstream_actors.model.vendor_types import plain, typed_item

from sandstream.exceptions import AgentsException
from sandstream.usage import Usage

if TYPE_CHECKING:
    from sandstream.agent import Agent

TResponseInputItem = dict[str, Any]
"""An input item of the Responses API, as JSON."""


class ToolOriginType(StrEnum):
    """Where a tool comes from."""

    FUNCTION = "function"
    MCP = "mcp"
    AGENT_AS_TOOL = "agent_as_tool"


@dataclass(frozen=True)
class ToolOrigin:
    """Where the tool of a call comes from."""

    type: ToolOriginType
    """The kind of tool: a function, a tool of an MCP server, or an agent as a tool."""
    mcp_server_name: str | None = None
    """The MCP server of the tool; ``None`` for other kinds."""
    agent_name: str | None = None
    """The agent that runs as a tool; ``None`` for other kinds."""
    agent_tool_name: str | None = None
    """The tool's name for that agent; ``None`` for other kinds."""


class AgentRef:
    """A strong reference to an agent until it is released, then a weak one."""

    def __init__(self, agent: Agent[Any]) -> None:
        self._strong: Agent[Any] | None = agent
        self._weak = weakref.ref(agent)

    def get(self) -> Agent[Any]:
        return self._strong or self._weak()  # type: ignore[return-value]  # None if it is gone

    def release(self) -> None:
        self._strong = None


class RunItemBase:
    """Base of all items. ``raw_item`` is converted to the vendor's type on first access.

    Args:
        agent: The agent whose turn produced the item.
        raw_item: The item as the Responses API has it: JSON or an object of the vendor.
    """

    type: ClassVar[Any] = ""
    """A literal in each class, so that type checkers know the item by it."""

    def __init__(self, agent: Agent[Any], raw_item: Any) -> None:
        self._agent = AgentRef(agent)
        self._raw = raw_item

    @property
    def agent(self) -> Agent[Any]:
        """The agent of the item; None if it was released and has been collected."""
        return self._agent.get()

    @cached_property
    def raw_item(self) -> Any:
        return typed_item(self._raw)

    def plain_item(self) -> dict[str, Any]:
        """The raw item as JSON."""
        item = plain(self._raw)
        if not isinstance(item, dict):
            raise TypeError(f"a {self.type} of type {type(item).__name__} cannot be an input item")
        return item

    def to_input_item(self) -> TResponseInputItem:
        """The item as input of another model call."""
        return self.plain_item()

    def release_agent(self) -> None:
        """Stop keeping the agent object alive."""
        self._agent.release()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._raw!r})"


class InputItem(RunItemBase):
    """Input that arrived during the run. ``agent`` is the agent that read it first."""

    type: ClassVar[Literal["input_item"]] = "input_item"

    @cached_property
    def raw_item(self) -> Any:
        return self._raw


class MessageOutputItem(RunItemBase):
    """A message of the model."""

    type: ClassVar[Literal["message_output_item"]] = "message_output_item"


class ReasoningItem(RunItemBase):
    """A reasoning item of the model."""

    type: ClassVar[Literal["reasoning_item"]] = "reasoning_item"


class ToolCallItem(RunItemBase):
    """A tool call that the model made: a function tool, a custom one or a hosted one.

    Args:
        agent: The agent that called the tool.
        raw_item: The call as the model made it.
        description: The tool's description; ``None`` if the tool is not known here.
        title: The tool's name for people; ``None`` if it has none.
        tool_origin: Where the tool comes from; ``None`` if that is not known.
    """

    type: ClassVar[Literal["tool_call_item"]] = "tool_call_item"

    def __init__(
        self,
        agent: Agent[Any],
        raw_item: Any,
        description: str | None = None,
        title: str | None = None,
        tool_origin: ToolOrigin | None = None,
    ) -> None:
        super().__init__(agent, raw_item)
        self.description = description
        self.title = title
        self.tool_origin = tool_origin

    @property
    def tool_name(self) -> str | None:
        return str(plain(self._raw).get("name") or plain(self._raw).get("type"))

    @property
    def call_id(self) -> str | None:
        value = plain(self._raw).get("call_id") or plain(self._raw).get("id")
        return None if value is None else str(value)


class ToolCallOutputItem(RunItemBase):
    """The result of a tool; ``output`` is its return value if it ran in this process.

    Args:
        agent: The agent that called the tool.
        raw_item: The output as the model gets it.
        output: The tool's return value, or the model's text if the tool ran in another process.
        custom_data: What the tool's ``custom_data_extractor`` returned; it is never sent to the
            model.
        tool_origin: Where the tool comes from; ``None`` if that is not known.
    """

    type: ClassVar[Literal["tool_call_output_item"]] = "tool_call_output_item"

    def __init__(
        self,
        agent: Agent[Any],
        raw_item: Any,
        output: Any,
        custom_data: Any | None = None,
        tool_origin: ToolOrigin | None = None,
    ) -> None:
        super().__init__(agent, raw_item)
        self.output = output
        self.custom_data = custom_data
        self.tool_origin = tool_origin

    @property
    def call_id(self) -> str | None:
        return str(self._raw["call_id"])


class HandoffCallItem(RunItemBase):
    """The model's call of a handoff."""

    type: ClassVar[Literal["handoff_call_item"]] = "handoff_call_item"


class HandoffOutputItem(RunItemBase):
    """The answer to a handoff call: ``target_agent`` continues the run.

    Args:
        agent: The agent that called the handoff.
        raw_item: The output as the model gets it.
        source_agent: The agent that hands the conversation over.
        target_agent: The agent that continues the run.
    """

    type: ClassVar[Literal["handoff_output_item"]] = "handoff_output_item"

    def __init__(
        self,
        agent: Agent[Any],
        raw_item: Any,
        source_agent: Agent[Any],
        target_agent: Agent[Any],
    ) -> None:
        super().__init__(agent, raw_item)
        self._source = AgentRef(source_agent)
        self._target = AgentRef(target_agent)

    @property
    def source_agent(self) -> Agent[Any]:
        return self._source.get()

    @property
    def target_agent(self) -> Agent[Any]:
        return self._target.get()

    def release_agent(self) -> None:
        super().release_agent()
        self._source.release()
        self._target.release()


class ToolApprovalItem(RunItemBase):
    """A call that waits for a person. Never part of a model's input.

    Args:
        agent: The agent that calls the tool.
        raw_item: The call as the model made it.
        tool_name: The name of the tool; ``None`` takes it from the call.
        tool_namespace: The group that the tool's name belongs to; ``None`` if it has no group.
        tool_origin: Where the tool comes from; ``None`` if that is not known.
        run_id: The run that waits; empty for an item that the caller made.
        call: The call's id in the log of that run; empty for an item that the caller made.

    Example:
        for item in result.interruptions:
            print(item.agent.name, item.tool_name, item.arguments)
    """

    type: ClassVar[Literal["tool_approval_item"]] = "tool_approval_item"

    def __init__(
        self,
        agent: Agent[Any],
        raw_item: Any,
        tool_name: str | None = None,
        tool_namespace: str | None = None,
        tool_origin: ToolOrigin | None = None,
        *,
        run_id: str = "",
        call: str = "",
    ) -> None:
        super().__init__(agent, raw_item)
        raw = plain(raw_item)
        self.tool_name = tool_name or raw.get("name")
        self.tool_namespace = tool_namespace
        self.tool_origin = tool_origin
        self.run_id = run_id
        """The run that waits: the caller's own run, or one of its child runs."""
        self.call = call
        """The call's id in the log of that run."""

    @property
    def name(self) -> str | None:
        return self.tool_name

    @property
    def qualified_name(self) -> str | None:
        if self.tool_name is None or not self.tool_namespace:
            return self.tool_name
        return f"{self.tool_namespace}.{self.tool_name}"

    @property
    def call_id(self) -> str | None:
        raw = plain(self._raw)
        value = raw.get("call_id") or raw.get("id")
        return None if value is None else str(value)

    @property
    def arguments(self) -> str | None:
        raw = plain(self._raw)
        value = raw.get("arguments", raw.get("input"))
        return None if value is None else str(value)

    def to_input_item(self) -> TResponseInputItem:
        raise AgentsException("an approval is not part of a model's input")


RunItem = (
    InputItem
    | MessageOutputItem
    | ReasoningItem
    | ToolCallItem
    | ToolCallOutputItem
    | HandoffCallItem
    | HandoffOutputItem
    | ToolApprovalItem
)


class ModelResponse:
    """One response of a model: output items, usage, ids.

    Args:
        output: The items that the model produced, in their order.
        usage: The tokens of this response.
        response_id: The provider's id, by which a later call can continue; ``None`` if it has none.
        request_id: The provider's id of the request, for its support; ``None`` if it has none.
        raw_usage: The usage as the provider reported it; ``None`` unless
            ``ModelSettings.preserve_raw_usage`` is set.
    """

    def __init__(
        self,
        output: Sequence[Any],
        usage: Usage,
        response_id: str | None = None,
        request_id: str | None = None,
        raw_usage: Any | None = None,
    ) -> None:
        self._output = list(output)
        self.usage = usage
        self.response_id = response_id
        self.request_id = request_id
        self.raw_usage = raw_usage

    @cached_property
    def output(self) -> list[Any]:
        return [typed_item(item) for item in self._output]

    def to_input_items(self) -> list[TResponseInputItem]:
        """The output as input of another call."""
        return [plain(item) for item in self._output]

    def __repr__(self) -> str:
        return f"ModelResponse(response_id={self.response_id!r}, output={self._output!r})"


def _content(item: Any) -> list[dict[str, Any]]:
    raw = plain(item)
    content = raw.get("content") if isinstance(raw, dict) and raw.get("type") == "message" else None
    return [part if isinstance(part, dict) else plain(part) for part in content or []]


class ItemHelpers:
    """Helpers to read items.

    Example:
        print(ItemHelpers.text_message_outputs(result.new_items))
    """

    @classmethod
    def extract_last_content(cls, message: Any) -> str:
        """The text or refusal of a message's last part.

        Args:
            message: The raw item of a message. Any other item counts as a message without parts.
        """
        parts = _content(message)
        if not parts:
            return ""
        last = parts[-1]
        return str(last.get("text" if last.get("type") == "output_text" else "refusal", ""))

    @classmethod
    def extract_last_text(cls, message: Any) -> str | None:
        """The text of a message's last part; None if that part is not text.

        Args:
            message: The raw item of a message. Any other item counts as a message without parts.
        """
        parts = _content(message)
        if parts and parts[-1].get("type") == "output_text":
            return str(parts[-1]["text"])
        return None

    @classmethod
    def extract_text(cls, message: Any) -> str | None:
        """All text parts of a message; None if there is none.

        Args:
            message: The raw item of a message. Any other item counts as a message without parts.
        """
        texts = [part["text"] for part in _content(message) if part.get("type") == "output_text"]
        return "".join(texts) or None

    @classmethod
    def extract_refusal(cls, message: Any) -> str | None:
        """All refusal parts of a message; None if there is none.

        Args:
            message: The raw item of a message. Any other item counts as a message without parts.
        """
        texts = [part["refusal"] for part in _content(message) if part.get("type") == "refusal"]
        return "".join(texts) or None

    @classmethod
    def input_to_new_input_list(
        cls, input: str | Sequence[TResponseInputItem]
    ) -> list[TResponseInputItem]:
        """A user's input as a list of items.

        Args:
            input: A text, which becomes one message of the user, or items, which are copied.
        """
        if isinstance(input, str):
            return [{"content": input, "role": "user"}]
        return [dict(plain(item)) for item in input]

    @classmethod
    def text_message_outputs(cls, items: Sequence[RunItem]) -> str:
        """The text of all messages among the items.

        Args:
            items: The items, for example ``result.new_items``.
        """
        return "".join(
            cls.text_message_output(item) for item in items if isinstance(item, MessageOutputItem)
        )

    @classmethod
    def text_message_output(cls, message: MessageOutputItem) -> str:
        """The text of one message; empty if it has none.

        Args:
            message: The item of the message.
        """
        return cls.extract_text(message._raw) or ""

    @classmethod
    def tool_call_output_item(cls, tool_call: Any, output: Any) -> dict[str, Any]:
        """The input item that answers a tool call.

        Args:
            tool_call: The call, as JSON or as an object of the vendor.
            output: What the tool returned: a text, a ``ToolOutput...`` object or a list of those.
        """
        from sandstream.tool import tool_output_to_wire

        call = plain(tool_call)
        custom = call.get("type") == "custom_tool_call"
        kind = "custom_tool_call_output" if custom else "function_call_output"
        return {"call_id": call["call_id"], "output": tool_output_to_wire(output), "type": kind}
