"""Short names for the decorators, for ``from sandstream.decorators import tool``."""

from sandstream.guardrail import input_guardrail, output_guardrail
from sandstream.tool import function_tool
from sandstream.tool import function_tool as tool
from sandstream.tool_guardrails import tool_input_guardrail, tool_output_guardrail

__all__ = [
    "function_tool",
    "input_guardrail",
    "output_guardrail",
    "tool",
    "tool_input_guardrail",
    "tool_output_guardrail",
]
