"""Records about model calls: their usage and their retries."""

from __future__ import annotations

import msgspec


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The usage of model calls, summed."""

    requests: int = 0
    """Requests to models, including retries."""
    input_tokens: int = 0
    """The tokens of the input."""
    output_tokens: int = 0
    """The tokens of the output."""
    total_tokens: int = 0
    """Input and output together."""
    cached_tokens: int = 0
    """The part of the input that was read from the prompt cache."""
    cache_write_tokens: int = 0
    """The part of the input that was stored in the prompt cache."""
    reasoning_tokens: int = 0
    """The part of the output that was reasoning."""

    def minus(self, other: TokenUsage) -> TokenUsage:
        """The usage since an earlier part of it.

        Args:
            other: The earlier part.
        """
        return TokenUsage(
            **{it: getattr(self, it) - getattr(other, it) for it in self.__struct_fields__}
        )

    def plus(self, other: TokenUsage) -> TokenUsage:
        """The sum of two usages.

        Args:
            other: The usage to add.
        """
        return TokenUsage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


class ModelRetry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model call that failed and was made again a moment later."""

    code: str
    """The HTTP status, or the kind of failure."""
    after_ms: int
    """When the request failed, in milliseconds since the start of the turn."""
    delay_s: float
    """How many seconds were waited then."""
