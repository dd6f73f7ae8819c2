"""Short names for the decorators, for ``from sandstream.decorators import tool``."""

from sandstream.tool import function_tool
from sandstream.tool import function_tool as tool

__all__ = ["function_tool", "tool"]
