"""A custom tool: the model writes one text instead of JSON arguments.

The Responses API can constrain that text by a grammar. As with function tools, this module only
declares the tool; the caller is elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from sandstream.exceptions import UserError
from sandstream.run_context import RunContextWrapper
from sandstream.tool_context import ToolContext

__all__ = [
    "CustomTool",
    "CustomToolApprovalFunction",
    "CustomToolCustomDataContext",
    "CustomToolCustomDataExtractor",
    "CustomToolExecutor",
    "CustomToolOnApprovalFunction",
    "ToolCaller",
]

ToolCaller: TypeAlias = Literal["direct", "programmatic"]
CustomToolExecutor: TypeAlias = Callable[[ToolContext[Any], str], Any | Awaitable[Any]]
CustomToolApprovalFunction: TypeAlias = Callable[
    [RunContextWrapper[Any], Any, str], bool | Awaitable[bool]
]
"""``(context, input, call id)`` -> whether a person must approve this call. The input is the
model's text, or what a subclass parses from it."""
CustomToolOnApprovalFunction: TypeAlias = Callable[[RunContextWrapper[Any], Any], Any]


@dataclass
class CustomTool:
    """A tool whose input is free text.

    Example:
        async def run_query(context: ToolContext[Any], text: str) -> str:
            return await database.fetch(text)


        sql = CustomTool(name="sql", description="Runs one query.", on_invoke_tool=run_query)
        agent = Agent(name="Analyst", tools=[sql])
    """

    name: str
    """The name by which the model calls the tool."""
    description: str
    """Tells the model what the tool does and what text it expects."""
    on_invoke_tool: CustomToolExecutor
    """Called with the context of the call and the model's text."""
    format: object | None = None
    """The format of the text: ``{"type": "grammar", "syntax": "lark", "definition": ...}``;
    None: any text."""
    needs_approval: bool | CustomToolApprovalFunction = False
    """Whether a person must approve a call: a bool, or a function that decides for each call."""
    on_approval: CustomToolOnApprovalFunction | None = None
    """Asked before a person is: ``{"approve": True}`` lets the call pass, ``{"approve": False,
    "reason": ...}`` refuses it, anything else leaves it to the person."""
    defer_loading: bool = False
    """Whether the provider hides the tool until the model searches for it."""
    custom_data_extractor: CustomToolCustomDataExtractor | None = field(default=None, kw_only=True)
    """Extracts data for the application from a result; it is never sent to the model."""
    allowed_callers: list[ToolCaller] | None = field(default=None, kw_only=True)
    """Who may call the tool: the model itself (``direct``), programs that the provider runs for it
    (``programmatic``), or both; ``None`` leaves it to the provider."""
    tool_config: dict[str, Any] = field(init=False, repr=False)
    """The tool's definition in a request of the Responses API."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise UserError(f"The name of a tool must be a non-empty string, not {self.name!r}.")
        if not callable(self.on_invoke_tool):
            raise UserError(
                f"on_invoke_tool of tool '{self.name}' must be a function of (ToolContext, str), "
                f"not {self.on_invoke_tool!r}."
            )
        self.tool_config = {
            "type": "custom",
            "name": self.name,
            "description": self.description,
        }
        if self.format is not None:
            self.tool_config["format"] = self.format
        if self.defer_loading:
            self.tool_config["defer_loading"] = True
        if self.allowed_callers is not None:
            self.allowed_callers = _checked_callers(self.name, self.allowed_callers)
            self.tool_config["allowed_callers"] = self.allowed_callers

    def runtime_needs_approval(self) -> bool | CustomToolApprovalFunction:
        """Whether a call must be approved, judged by the raw text."""
        return self.needs_approval

    def runtime_on_approval(self) -> CustomToolOnApprovalFunction | None:
        """The function that decides on approvals during a run."""
        return self.on_approval

    @property
    def type(self) -> str:
        return "custom"


def _checked_callers(tool: str, callers: list[ToolCaller]) -> list[ToolCaller]:
    is_list = isinstance(callers, list) and bool(callers)
    if not is_list or any(caller not in ("direct", "programmatic") for caller in callers):
        raise UserError(
            f"allowed_callers of tool '{tool}' must be a list of 'direct', 'programmatic' or both, "
            f"not {callers!r}."
        )
    if len(set(callers)) < len(callers):
        raise UserError(f"allowed_callers of tool '{tool}' names a caller twice: {callers!r}.")
    return list(callers)


@dataclass(frozen=True)
class CustomToolCustomDataContext:
    """The argument of a ``custom_data_extractor``."""

    tool_context: ToolContext[Any]
    """The context of the call."""
    tool: CustomTool
    """The tool that was called."""
    input: str
    """The text that the model wrote."""
    output: str
    """The text that the model gets back."""
    raw_item: Mapping[str, Any]
    """The output item for the model."""


CustomToolCustomDataExtractor: TypeAlias = Callable[
    [CustomToolCustomDataContext],
    "Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None",
]
