"""Ready-made filters for what the next agent sees after a handoff."""

from __future__ import annotations

from sandstream.handoffs import (
    HandoffInputData,
    default_handoff_history_mapper,
    nest_handoff_history,
)
from sandstream.items import (
    HandoffCallItem,
    HandoffOutputItem,
    ReasoningItem,
    RunItem,
    ToolApprovalItem,
    ToolCallItem,
    ToolCallOutputItem,
)

__all__ = ["default_handoff_history_mapper", "nest_handoff_history", "remove_all_tools"]

_TOOL_ITEMS = (
    HandoffCallItem,
    HandoffOutputItem,
    ReasoningItem,
    ToolApprovalItem,
    ToolCallItem,
    ToolCallOutputItem,
)

_TOOL_TYPES = (
    "apply_patch_call",
    "apply_patch_call_output",
    "code_interpreter_call",
    "computer_call",
    "computer_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "file_search_call",
    "function_call",
    "function_call_output",
    "hosted_tool_call",
    "image_generation_call",
    "local_shell_call",
    "local_shell_call_output",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "mcp_list_tools",
    "program",
    "program_output",
    "reasoning",  # belongs to the call that it led to
    "shell_call",
    "shell_call_output",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
)


def remove_all_tools(handoff_input_data: HandoffInputData) -> HandoffInputData:
    """Leave out every call and output of a tool, and reasoning: only messages remain.

    Args:
        handoff_input_data: The conversation at the handoff. It is not changed.

    Returns:
        A copy without these items.

    Example:
        support = handoff(support_agent, input_filter=remove_all_tools)
    """
    history = handoff_input_data.input_history
    input_items = handoff_input_data.input_items
    if isinstance(history, tuple):
        history = tuple(item for item in history if item.get("type") not in _TOOL_TYPES)
    return handoff_input_data.clone(
        input_history=history,
        pre_handoff_items=_without_tools(handoff_input_data.pre_handoff_items),
        new_items=_without_tools(handoff_input_data.new_items),
        input_items=None if input_items is None else _without_tools(input_items),
    )


def _without_tools(items: tuple[RunItem, ...]) -> tuple[RunItem, ...]:
    return tuple(item for item in items if not isinstance(item, _TOOL_ITEMS))
