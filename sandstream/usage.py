"""Token counts of model requests, summed over a run.

Plain dataclasses: they cross the bus as JSON and are created for every model call, so this module
does not import ``openai`` or ``pydantic``. Detail objects of ``openai`` are read by attribute,
dicts by key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sandstream_bus.wire.model_records import TokenUsage

__all__ = ["InputTokensDetails", "OutputTokensDetails", "RequestUsage", "Usage"]


@dataclass
class InputTokensDetails:
    """The part of the input that went through the provider's prompt cache."""

    cached_tokens: int = 0
    """Tokens that were read from the cache, usually at a lower price."""
    cache_write_tokens: int = 0
    """Tokens that were stored in the cache."""


@dataclass
class OutputTokensDetails:
    """The part of the output that the model spent on reasoning."""

    reasoning_tokens: int = 0
    """Tokens of the reasoning. They are part of the output tokens."""


@dataclass
class RequestUsage:
    """Tokens of one model request, for pricing and context-window accounting."""

    input_tokens: int
    """The tokens of the input."""
    output_tokens: int
    """The tokens of the output."""
    total_tokens: int
    """Input and output together."""
    input_tokens_details: InputTokensDetails = field(default_factory=InputTokensDetails)
    """The part of the input that went through the prompt cache."""
    output_tokens_details: OutputTokensDetails = field(default_factory=OutputTokensDetails)
    """The part of the output that was reasoning."""

    def __post_init__(self) -> None:
        self.input_tokens_details = _input_details(self.input_tokens_details)
        self.output_tokens_details = _output_details(self.output_tokens_details)


@dataclass
class Usage:
    """Tokens and requests of one model call, or the running total of a run.

    Example:
        print(result.context_wrapper.usage.total_tokens)
    """

    requests: int = 0
    """The number of requests, including retries."""
    input_tokens: int = 0
    """The tokens of the input."""
    input_tokens_details: InputTokensDetails = field(default_factory=InputTokensDetails)
    """The part of the input that went through the prompt cache."""
    output_tokens: int = 0
    """The tokens of the output."""
    output_tokens_details: OutputTokensDetails = field(default_factory=OutputTokensDetails)
    """The part of the output that was reasoning."""
    total_tokens: int = 0
    """Input and output together."""
    request_usage_entries: list[RequestUsage] = field(default_factory=list)
    """One entry for each request that reported its tokens."""

    def __post_init__(self) -> None:
        self.input_tokens_details = _input_details(self.input_tokens_details)
        self.output_tokens_details = _output_details(self.output_tokens_details)

    def add(self, other: Usage) -> None:
        """Add another usage to this total.

        Args:
            other: The usage to add. It is not changed and shares no objects with the total.
        """
        # Copied before the sums change, so that ``usage.add(usage)`` doubles the total.
        entries = other.entries()
        self.requests += other.requests
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.total_tokens += other.total_tokens
        mine, theirs = self.input_tokens_details, other.input_tokens_details
        self.input_tokens_details = InputTokensDetails(
            cached_tokens=mine.cached_tokens + theirs.cached_tokens,
            cache_write_tokens=mine.cache_write_tokens + theirs.cache_write_tokens,
        )
        self.output_tokens_details = OutputTokensDetails(
            reasoning_tokens=self.output_tokens_details.reasoning_tokens
            + other.output_tokens_details.reasoning_tokens
        )
        self.request_usage_entries.extend(entries)

    def entries(self) -> list[RequestUsage]:
        """A copy of the entries by request; derived from the totals for a single request."""
        if self.request_usage_entries:
            return [
                replace(
                    entry,
                    input_tokens_details=replace(entry.input_tokens_details),
                    output_tokens_details=replace(entry.output_tokens_details),
                )
                for entry in self.request_usage_entries
            ]
        reported = self.input_tokens or self.output_tokens or self.total_tokens
        if self.requests != 1 or not reported:
            return []  # nothing was reported, or it cannot be split by request
        return [
            RequestUsage(
                input_tokens=self.input_tokens,
                output_tokens=self.output_tokens,
                total_tokens=self.total_tokens,
                input_tokens_details=replace(self.input_tokens_details),
                output_tokens_details=replace(self.output_tokens_details),
            )
        ]


def _count(details: Any, name: str) -> int:
    value = details.get(name) if isinstance(details, Mapping) else getattr(details, name, None)
    return int(value or 0)


def _input_details(details: Any) -> InputTokensDetails:
    if isinstance(details, InputTokensDetails):
        return details
    return InputTokensDetails(
        cached_tokens=_count(details, "cached_tokens"),
        cache_write_tokens=_count(details, "cache_write_tokens"),
    )


def _output_details(details: Any) -> OutputTokensDetails:
    if isinstance(details, OutputTokensDetails):
        return details
    return OutputTokensDetails(reasoning_tokens=_count(details, "reasoning_tokens"))


def usage_of(tokens: TokenUsage) -> Usage:
    """Token counts of a message as the public type."""
    return Usage(
        requests=tokens.requests,
        input_tokens=tokens.input_tokens,
        input_tokens_details=InputTokensDetails(
            cached_tokens=tokens.cached_tokens, cache_write_tokens=tokens.cache_write_tokens
        ),
        output_tokens=tokens.output_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=tokens.reasoning_tokens),
        total_tokens=tokens.total_tokens,
    )
