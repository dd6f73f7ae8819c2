"""The runner and its settings, at their import path in the OpenAI Agents SDK."""

from __future__ import annotations

from sandstream.run_config import (
    DEFAULT_MAX_TURNS,
    CallModelData,
    CallModelInputFilter,
    ModelInputData,
    RunConfig,
    ToolErrorFormatter,
    ToolErrorFormatterArgs,
)
from sandstream.runner import Runner

__all__ = [
    "DEFAULT_MAX_TURNS",
    "CallModelData",
    "CallModelInputFilter",
    "ModelInputData",
    "RunConfig",
    "Runner",
    "ToolErrorFormatter",
    "ToolErrorFormatterArgs",
]
