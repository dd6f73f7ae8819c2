"""The process's environment. All packages that may import the bus read it, and set it, only here.

Settings that belong together are read in one go by their own type (``Settings.from_env``,
``TracingSettings.of``, ``routes_from_env``), which gets :func:`environment`. Nothing is kept here:
a program may change its environment at any time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

LOCAL_ISOLATION = "SANDSTREAM_LOCAL_ISOLATION"
"""How this machine's sandboxes are isolated, unless a client or a flag sets it."""


def environment(given: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """The variables that were given, else those of this process."""
    return os.environ if given is None else given


def variable(name: str, default: str = "") -> str:
    """One variable of this process."""
    return os.environ.get(name, default)


def set_variable(name: str, value: str) -> None:
    """For this process and those that it starts."""
    os.environ[name] = value


def unset_variables(prefixes: tuple[str, ...]) -> None:
    """Remove all variables whose names begin so, for this process and those that it starts."""
    for name in [it for it in os.environ if it.startswith(prefixes)]:
        del os.environ[name]


def local_isolation() -> str:
    """``required`` or ``none``; the caller refuses any other value."""
    return variable(LOCAL_ISOLATION) or "required"


def shows_model_data() -> bool:
    """May errors and logs quote the texts of models?"""
    return _is_switched_off("OPENAI_AGENTS_DONT_LOG_MODEL_DATA")


def shows_tool_data() -> bool:
    """May errors and logs quote the arguments and results of tools?"""
    return _is_switched_off("OPENAI_AGENTS_DONT_LOG_TOOL_DATA")


def _is_switched_off(name: str) -> bool:
    return variable(name, "1").lower() in ("0", "false")
