"""Decides whether a failed model call is repeated, and after which delay.

Opt-in: without a policy and a maximum there are no retries. Settings cross the bus; a policy is
Python and stays in the process that makes the call. This module does not call models.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

__all__ = [
    "ModelRetryAdvice",
    "ModelRetryAdviceRequest",
    "ModelRetryBackoffSettings",
    "ModelRetryNormalizedError",
    "ModelRetrySettings",
    "RetryDecision",
    "RetryPolicy",
    "RetryPolicyContext",
    "retry_policies",
]

ReplaySafety: TypeAlias = Literal["safe", "unsafe", "unknown"]

_JITTER = 0.125


@dataclass
class ModelRetryBackoffSettings:
    """Exponential backoff between retries."""

    initial_delay: float | None = None
    """Seconds before the first retry; ``None`` is 0.25."""
    max_delay: float | None = None
    """The longest delay in seconds; ``None`` is 2."""
    multiplier: float | None = None
    """The factor by which each delay grows; ``None`` is 2."""
    jitter: bool | None = None
    """Whether delays vary at random by an eighth; ``None`` is true."""

    def __post_init__(self) -> None:
        for name in ("initial_delay", "max_delay", "multiplier"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and value >= 0):
                raise ValueError(f"Backoff {name} must be a number of at least 0, not {value!r}.")

    def delay_s(self, attempt: int) -> float:
        """Seconds to wait before retry number ``attempt`` (the first is 1).

        Args:
            attempt: The number of the retry; the first is 1.
        """
        initial = 0.25 if self.initial_delay is None else self.initial_delay
        ceiling = 2.0 if self.max_delay is None else self.max_delay
        multiplier = 2.0 if self.multiplier is None else self.multiplier
        try:
            delay = initial * multiplier ** max(attempt - 1, 0)
        except OverflowError:
            delay = ceiling
        delay = min(delay, ceiling)
        if self.jitter is not False:
            delay *= random.uniform(1 - _JITTER, 1 + _JITTER)
        return min(delay, ceiling)

    def to_json_dict(self) -> dict[str, Any]:
        """All settings by their names."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass
class ModelRetryNormalizedError:
    """The common data of all providers' errors."""

    status_code: int | None = None
    """The HTTP status; ``None`` if there was no answer."""
    error_code: str | None = None
    """The provider's own code of the error."""
    message: str | None = None
    """The text of the error."""
    request_id: str | None = None
    """The provider's id of the request, for its support."""
    retry_after: float | None = None
    """Seconds to wait, if the provider said so."""
    is_abort: bool = False
    """Whether the caller ended the request."""
    is_network_error: bool = False
    """Whether the connection failed before there was an answer."""
    is_timeout: bool = False
    """Whether the request took too long."""


@dataclass
class ModelRetryAdvice:
    """The model's own advice on whether to send a failed request again."""

    suggested: bool | None = None
    """Whether to repeat the request; ``None`` is no opinion."""
    retry_after: float | None = None
    """Seconds to wait; ``None`` leaves it to the backoff."""
    replay_safety: ReplaySafety | None = None
    """Whether repeating is harmless: the provider has not carried out the request (``safe``), it
    may have (``unknown``), or it has (``unsafe``)."""
    reason: str | None = None
    """Why, for people."""
    normalized: ModelRetryNormalizedError | None = None
    """The error in its common form, if the model has read it."""
    response_started: bool = False
    """Whether a part of the answer had arrived."""


@dataclass
class ModelRetryAdviceRequest:
    """The data about a failed call when its model is asked for advice."""

    error: Exception
    """The exception of the failed call."""
    attempt: int
    """The number of the failed attempt; the first is 1."""
    stream: bool
    """Whether the answer was to be streamed."""
    previous_response_id: str | None = None
    """The stored response that the call continues after."""
    conversation_id: str | None = None
    """The stored conversation that the call continues."""


@dataclass
class RetryDecision:
    """The decision of a policy."""

    retry: bool
    """Whether to repeat the call."""
    delay: float | None = None
    """Seconds to wait, instead of the backoff."""
    reason: str | None = None
    """Why, for people."""
    approve_unsafe_replay: bool = False
    """Whether to repeat a call that the provider may already have carried out."""
    # The provider said no: no other policy in a combination may override it.
    _is_veto: bool = field(default=False, init=False, repr=False, compare=False)


@dataclass
class RetryPolicyContext:
    """The data for a policy's decision. ``attempt`` is the number of the failed attempt.

    Example:
        def only_busy(context: RetryPolicyContext) -> bool:
            return context.normalized.status_code == 503 and context.attempt < 3


        settings = ModelSettings(retry=ModelRetrySettings(max_retries=5, policy=only_busy))
    """

    error: Exception
    """The exception of the failed call."""
    attempt: int
    """The number of the failed attempt; the first is 1."""
    max_retries: int
    """How often the settings allow to repeat the call."""
    stream: bool
    """Whether the answer was to be streamed."""
    normalized: ModelRetryNormalizedError
    """The error in a form that is the same for all providers."""
    provider_advice: ModelRetryAdvice | None = None
    """What the model itself advises; ``None`` if it gives no advice."""
    previous_response_id: str | None = None
    """The stored response that the call continues after."""
    conversation_id: str | None = None
    """The stored conversation that the call continues."""

    @property
    def response_started(self) -> bool:
        return self.provider_advice is not None and self.provider_advice.response_started

    @property
    def replay_safety(self) -> ReplaySafety:
        advice = self.provider_advice
        return (advice.replay_safety if advice else None) or "unknown"

    @property
    def stateful_request(self) -> bool:
        """Whether the request changes a conversation that the provider keeps."""
        return self.previous_response_id is not None or self.conversation_id is not None


RetryPolicy: TypeAlias = Callable[
    [RetryPolicyContext], "bool | RetryDecision | Awaitable[bool | RetryDecision]"
]


@dataclass
class ModelRetrySettings:
    """How often and how a failed model call is repeated.

    Example:
        retry = ModelRetrySettings(max_retries=3, policy=retry_policies.network_error())
        settings = ModelSettings(retry=retry)
    """

    max_retries: int | None = None
    """How often to repeat a call; without a number there are no retries."""
    backoff: ModelRetryBackoffSettings | None = None
    """The delays between retries, unless the policy gives one."""
    policy: RetryPolicy | None = field(default=None, repr=False)
    """Decides whether an error is worth a retry; without a policy there are no retries."""

    def __post_init__(self) -> None:
        if isinstance(self.backoff, Mapping):
            self.backoff = ModelRetryBackoffSettings(**self.backoff)
        if self.max_retries is not None and not isinstance(self.max_retries, int):
            raise ValueError(f"max_retries must be a whole number, not {self.max_retries!r}.")

    def resolve(self, override: ModelRetrySettings | None) -> ModelRetrySettings:
        """Combine these settings with others.

        Args:
            override: Settings whose values win where they are not ``None``; the backoff is merged
                field by field.

        Returns:
            New settings, or these if there is nothing to override.
        """
        if override is None:
            return self
        backoff = self.backoff
        if backoff is None or override.backoff is None:
            backoff = override.backoff or backoff
        else:
            changes = {k: v for k, v in override.backoff.to_json_dict().items() if v is not None}
            backoff = ModelRetryBackoffSettings(**{**backoff.to_json_dict(), **changes})
        retries = self.max_retries if override.max_retries is None else override.max_retries
        return ModelRetrySettings(retries, backoff, override.policy or self.policy)

    def to_json_dict(self) -> dict[str, Any]:
        """All settings except the policy, which is Python."""
        backoff = self.backoff.to_json_dict() if self.backoff else None
        return {"max_retries": self.max_retries, "backoff": backoff}


class _RetryPolicies:
    """Ready-made policies; combine them with ``any`` and ``all``.

    Example:
        policy = retry_policies.any(
            retry_policies.network_error(), retry_policies.http_status([429, 503])
        )
        settings = ModelSettings(retry=ModelRetrySettings(max_retries=3, policy=policy))
    """

    def never(self) -> RetryPolicy:
        """Never retry."""
        return lambda context: False

    def provider_suggested(self) -> RetryPolicy:
        """Follow the provider's advice. Its explicit "no" also overrides other policies."""

        def policy(context: RetryPolicyContext) -> bool | RetryDecision:
            advice = context.provider_advice
            if advice is None or advice.suggested is None:
                return False
            if advice.suggested:
                return RetryDecision(True, delay=advice.retry_after, reason=advice.reason)
            decision = RetryDecision(False, reason=advice.reason)
            decision._is_veto = True
            return decision

        return policy

    def network_error(self) -> RetryPolicy:
        """Retry when the connection failed or timed out."""
        return lambda context: context.normalized.is_network_error or context.normalized.is_timeout

    def retry_after(self) -> RetryPolicy:
        """Retry if the provider said how long to wait, after that time."""

        def policy(context: RetryPolicyContext) -> bool | RetryDecision:
            delay = context.normalized.retry_after
            if delay is None and context.provider_advice is not None:
                delay = context.provider_advice.retry_after
            return False if delay is None else RetryDecision(True, delay=delay)

        return policy

    def http_status(self, statuses: Iterable[int]) -> RetryPolicy:
        """Retry on these HTTP status codes.

        Args:
            statuses: The codes, for example ``[429, 503]``.
        """
        wanted = frozenset(statuses)
        return lambda context: context.normalized.status_code in wanted

    def any(self, *policies: RetryPolicy) -> RetryPolicy:
        """Retry if one policy approves and none carries the provider's veto.

        Args:
            policies: The policies. All are asked; without any there are no retries.
        """
        if not policies:
            return self.never()

        async def policy(context: RetryPolicyContext) -> RetryDecision:
            decisions = [await decide(each, context) for each in policies]
            veto = next((each for each in decisions if each._is_veto), None)
            if veto is not None:
                return veto
            approvals = [each for each in decisions if each.retry]
            return _merged(approvals) if approvals else decisions[-1]

        return policy

    def all(self, *policies: RetryPolicy) -> RetryPolicy:
        """Retry only if every policy approves.

        Args:
            policies: The policies, asked in order until one refuses; without any there are no
                retries.
        """
        if not policies:
            return self.never()

        async def policy(context: RetryPolicyContext) -> RetryDecision:
            approvals: list[RetryDecision] = []
            for each in policies:
                decision = await decide(each, context)
                if not decision.retry:
                    return decision
                approvals.append(decision)
            return _merged(approvals)

        return policy


async def decide(policy: RetryPolicy, context: RetryPolicyContext) -> RetryDecision:
    """Ask a policy and normalize its answer."""
    answer: Any = policy(context)
    if inspect.isawaitable(answer):
        answer = await answer
    return answer if isinstance(answer, RetryDecision) else RetryDecision(bool(answer))


def _merged(approvals: list[RetryDecision]) -> RetryDecision:
    """Merge decisions: later values win; one approval of unsafe replay is enough."""
    merged = RetryDecision(True)
    for each in approvals:
        merged.delay = merged.delay if each.delay is None else each.delay
        merged.reason = each.reason or merged.reason
        merged.approve_unsafe_replay |= each.approve_unsafe_replay
    return merged


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


retry_policies = _RetryPolicies()
