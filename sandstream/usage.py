"""Token counts of model requests, summed over a run.

Plain dataclasses: they cross the bus as JSON and are made for every model call, so nothing here
imports ``openai`` or ``pydantic``. The detail objects of the ``openai`` package are accepted by
their attributes, and dicts by their keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["InputTokensDetails", "OutputTokensDetails", "RequestUsage", "Usage"]


@dataclass
class InputTokensDetails:
    """The part of the input that went through the provider's prompt cache."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass
class OutputTokensDetails:
    """The part of the output that the model spent on reasoning."""

    reasoning_tokens: int = 0


@dataclass
class RequestUsage:
    """Tokens of one model request, for pricing and context-window accounting."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails = field(default_factory=InputTokensDetails)
    output_tokens_details: OutputTokensDetails = field(default_factory=OutputTokensDetails)

    def __post_init__(self) -> None:
        self.input_tokens_details = _input_details(self.input_tokens_details)
        self.output_tokens_details = _output_details(self.output_tokens_details)


@dataclass
class Usage:
    """Tokens and requests of one model call, or the running total of a run.

    ``requests`` counts attempts that were retried too. ``request_usage_entries`` has one entry
    for each request that reported its tokens.
    """

    requests: int = 0
    input_tokens: int = 0
    input_tokens_details: InputTokensDetails = field(default_factory=InputTokensDetails)
    output_tokens: int = 0
    output_tokens_details: OutputTokensDetails = field(default_factory=OutputTokensDetails)
    total_tokens: int = 0
    request_usage_entries: list[RequestUsage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.input_tokens_details = _input_details(self.input_tokens_details)
        self.output_tokens_details = _output_details(self.output_tokens_details)

    def add(self, other: Usage) -> None:
        """Add ``other`` to this total. ``other`` stays as it is and shares nothing with it."""
        # Taken before the sums change: ``usage.add(usage)`` must double, not diverge.
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
        """A copy of the breakdown by request; made of the totals if there is one request."""
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
