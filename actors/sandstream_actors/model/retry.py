"""When to repeat a failed attempt, and after how long.

Only short waits: the client retries what a second attempt usually cures. A rate limit, or a wait
longer than `RetryPolicy.longest_wait_s`, goes back to the caller, which can wait durably.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sandstream_actors.model.interface import ModelCallError

logger = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Number and delays of retries; `settings["retry"]` of a request overrides it key by key."""

    max_retries: int = 2
    initial_delay_s: float = 0.5
    max_delay_s: float = 8.0
    multiplier: float = 2.0
    jitter: bool = True
    longest_wait_s: float = 30.0

    def overridden(self, settings: Mapping[str, Any] | None) -> RetryPolicy:
        if not settings:
            return self
        changes: dict[str, Any] = {}
        if settings.get("max_retries") is not None:
            changes["max_retries"] = _number(settings, "max_retries", int)
        backoff = settings.get("backoff") or {}
        for name, field in _BACKOFF_FIELDS.items():
            if backoff.get(name) is not None:
                changes[field] = _number(backoff, name, float)
        if backoff.get("jitter") is not None:
            changes["jitter"] = bool(backoff["jitter"])
        return replace(self, **changes)

    def delay_s(self, failures: int, error: ModelCallError) -> float | None:
        """The wait after this many failures, or ``None`` to give up."""
        if failures > self.max_retries or not error.retryable or error.kind != "unavailable":
            return None
        if error.retry_after_s is not None and error.retry_after_s > 0:
            wait = error.retry_after_s
            return wait if wait <= self.longest_wait_s else None
        delay = self.initial_delay_s * self.multiplier ** min(failures - 1, 64)
        delay = min(delay, self.max_delay_s)
        return delay * random.uniform(0.875, 1.125) if self.jitter else delay


_BACKOFF_FIELDS = {
    "initial_delay": "initial_delay_s",
    "max_delay": "max_delay_s",
    "multiplier": "multiplier",
}


async def with_retries(
    attempt: Callable[[], Awaitable[T]], policy: RetryPolicy, sleep: Sleep
) -> tuple[T, int]:
    """The result and the number of failed attempts; a final error counts all of them."""
    failures = 0
    while True:
        try:
            return await attempt(), failures
        except ModelCallError as error:
            sent = error.kind != "misconfigured"
            failures += sent
            error.requests = failures
            delay = policy.delay_s(failures, error)
            if delay is None:
                raise
            logger.info(
                "retrying a failed model call",
                extra={"attempt": failures, "delay_s": delay, "status": error.status},
            )
        await sleep(delay)


def _number(source: Mapping[str, Any], name: str, kind: type[int] | type[float]) -> float:
    value = source[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ModelCallError(
            "misconfigured",
            f"The retry setting {name!r} must be a number that is not negative.",
            code="bad_setting",
        )
    return kind(value)
