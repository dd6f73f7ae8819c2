"""The public names of an SDK and what they can be called with, as JSON on stdout."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from typing import Any

_CLASSES = ("Agent", "Runner", "RunResult", "RunContextWrapper", "Model", "ItemHelpers")
"""Those whose methods users call."""


def parameters(function: Any) -> list[str]:
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return []
    return [name for name in found if name not in ("self", "args", "kwargs") and name[0] != "_"]


def surface(sdk: str) -> dict[str, list[str]]:
    """Name -> parameters; `Class.method` for the methods of the main classes."""
    module = importlib.import_module(sdk)
    found: dict[str, list[str]] = {}
    for name in module.__all__:
        value = getattr(module, name)
        found[name] = parameters(value) if callable(value) else []
        if name in _CLASSES:
            for method in dir(value):
                if method[0] != "_" and callable(getattr(value, method, None)):
                    found[f"{name}.{method}"] = parameters(getattr(value, method))
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(surface(sys.argv[1])))
