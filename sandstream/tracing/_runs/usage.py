"""Token usage in span data."""

from __future__ import annotations

from typing import Any

from sandstream_bus.wire.messages import TokenUsage


def turn_usage(now: TokenUsage, before: TokenUsage) -> dict[str, Any] | None:
    """The usage since ``before``; ``None`` if no model was called."""
    if now.requests <= before.requests:
        return None
    return {
        "input_tokens": now.input_tokens - before.input_tokens,
        "output_tokens": now.output_tokens - before.output_tokens,
        "cached_input_tokens": now.cached_tokens - before.cached_tokens,
        "cache_write_input_tokens": now.cache_write_tokens - before.cache_write_tokens,
    }


def task_usage(now: TokenUsage, before: TokenUsage) -> dict[str, Any] | None:
    used = turn_usage(now, before)
    if used is None:
        return None
    return {
        **used,
        "requests": now.requests - before.requests,
        "total_tokens": now.total_tokens - before.total_tokens,
    }


def answer_usage(usage: TokenUsage) -> dict[str, Any]:
    """The usage of one model answer."""
    return {
        "requests": usage.requests,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
