"""Applies the run's formatter to texts that a model gets in place of a tool's output."""

from __future__ import annotations

from typing import Any, Literal

from sandstream_bus.wire.messages import CallRequested

from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.values import resolved
from sandstream.run_config import ToolErrorFormatterArgs


async def formatted(
    hosted: HostedRun,
    call: CallRequested,
    kind: Literal["approval_rejected", "tool_not_found", "tool_exception"],
    default: str,
    error: Exception | None,
    *,
    tool_type: Any = "function",
) -> str | None:
    """The text of ``RunConfig.tool_error_formatter``; None for the default."""
    if hosted.config.tool_error_formatter is None:
        return None
    arguments = ToolErrorFormatterArgs(
        kind=kind,
        tool_type=tool_type,
        tool_name=call.name,
        call_id=call.call_id,
        default_message=default,
        run_context=hosted.context,
        error=error,
    )
    text = await resolved(hosted.config.tool_error_formatter(arguments))
    return text if isinstance(text, str) else None
