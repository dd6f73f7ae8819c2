"""The public names of an SDK and what they can be called with, as JSON on stdout."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
from typing import Any

_CLASSES = (
    "Agent",
    "Handoff",
    "HandoffInputData",
    "ItemHelpers",
    "Model",
    "RunContextWrapper",
    "RunResult",
    "RunState",
    "Runner",
    "SQLiteSession",
    "ToolGuardrailFunctionOutput",
)
"""Those whose methods users call."""
_MODULES = ("extensions.handoff_filters", "extensions.handoff_prompt", "mcp", "tracing")
"""Those that users import by name, besides the SDK itself."""
_MCP_CLASSES = ("MCPServerStdio", "MCPServerManager")


def parameters(function: Any) -> list[str]:
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return []
    return [name for name in found if name not in ("self", "args", "kwargs") and name[0] != "_"]


def surface(sdk: str) -> dict[str, list[str]]:
    """Name -> parameters; `Class.method` for the methods of the main classes."""
    found = names_of(importlib.import_module(sdk), _CLASSES)
    for module in _MODULES:
        if importlib.util.find_spec(f"{sdk}.{module.partition('.')[0]}"):
            named = names_of(importlib.import_module(f"{sdk}.{module}"), _MCP_CLASSES)
            found |= {f"{module}.{name}": parameters for name, parameters in named.items()}
    return found


def names_of(module: Any, classes: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in getattr(module, "__all__", None) or [one for one in vars(module) if one[0] != "_"]:
        value = getattr(module, name)
        found[name] = parameters(value) if callable(value) else []
        if name in classes:
            for method in dir(value):
                if method[0] != "_" and callable(getattr(value, method, None)):
                    found[f"{name}.{method}"] = parameters(getattr(value, method))
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(surface(sys.argv[1])))
