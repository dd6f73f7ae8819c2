"""Sandstream: durable, distributed AI agents on NATS JetStream.

Everything public is importable from here. Names are loaded on first use, so importing this package
costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandstream.version import __version__

if TYPE_CHECKING:
    from sandstream_bus.runtime import Actor as Actor

    from sandstream.agent import Agent as Agent
    from sandstream.agent import GenerateDynamicPromptData as GenerateDynamicPromptData
    from sandstream.agent import StopAtTools as StopAtTools
    from sandstream.agent import Tool as Tool
    from sandstream.agent import ToolsToFinalOutputFunction as ToolsToFinalOutputFunction
    from sandstream.run_config import RunConfig as RunConfig
    from sandstream.runner import Runner as Runner
    from sandstream.tool import FunctionTool as FunctionTool
    from sandstream.tool import function_tool as function_tool

_EXPORTS = {
    "Actor": "sandstream_bus.runtime",
    "Agent": "sandstream.agent",
    "RunConfig": "sandstream.run_config",
    "Runner": "sandstream.runner",
    "FunctionTool": "sandstream.tool",
    "function_tool": "sandstream.tool",
}


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'sandstream' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


__all__ = ["__version__", *_EXPORTS]
