"""Asks the user's retry policy whether to repeat a failed model call, and waits.

A policy is a function, so it runs in the process that has it, and so does the model call. This
module also decides what is never repeated: a stream that showed something, and a request that
changes a conversation on the server, unless repeating it is known to be safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sandstream_actors.model import ModelCallError
from sandstream_bus.wire.error_text import error_text

from sandstream.items import ModelResponse
from sandstream.retry import (
    ModelRetryAdvice,
    ModelRetryAdviceRequest,
    ModelRetryBackoffSettings,
    ModelRetryNormalizedError,
    ModelRetrySettings,
    RetryPolicyContext,
    decide,
)


async def with_policy(
    ask: Callable[[], Awaitable[ModelResponse]],
    retry: ModelRetrySettings,
    *,
    stream: bool,
    has_shown: Callable[[], bool],
    advise: Callable[[ModelRetryAdviceRequest], ModelRetryAdvice | None],
    previous_response_id: str | None,
    conversation_id: str | None,
) -> tuple[ModelResponse, int]:
    """Return the answer, and the number of failed attempts before it."""
    assert retry.policy is not None
    limit = retry.max_retries or 0
    backoff = retry.backoff or ModelRetryBackoffSettings()
    failures = 0
    while True:
        try:
            return await ask(), failures
        except Exception as error:
            failures += 1
            if failures > limit or has_shown():
                raise
            normalized, advice = describe(error)
            asked = ModelRetryAdviceRequest(
                error, failures, stream, previous_response_id, conversation_id
            )
            advice = advise(asked) or advice
            context = RetryPolicyContext(
                error=error,
                attempt=failures,
                max_retries=limit,
                stream=stream,
                normalized=(advice.normalized if advice else None) or normalized,
                provider_advice=advice,
                previous_response_id=previous_response_id,
                conversation_id=conversation_id,
            )
            decision = await decide(retry.policy, context)
            is_safe = context.replay_safety == "safe" or decision.approve_unsafe_replay
            if not decision.retry or (context.stateful_request and not is_safe):
                raise
            delay_s = decision.delay
        await asyncio.sleep(backoff.delay_s(failures) if delay_s is None else delay_s)


def describe(error: Exception) -> tuple[ModelRetryNormalizedError, ModelRetryAdvice | None]:
    """The data about an error for policies; errors of the model seam also carry advice."""
    failure = error.__cause__
    if not isinstance(failure, ModelCallError):
        return _of_foreign(error), None
    normalized = ModelRetryNormalizedError(
        status_code=failure.status,
        error_code=failure.code if failure.status is not None else None,
        message=failure.message,
        request_id=failure.request_id,
        retry_after=failure.retry_after_s,
        is_network_error=failure.kind == "unavailable" and failure.status is None,
        is_timeout=failure.kind == "timeout",
    )
    advice = ModelRetryAdvice(
        suggested=failure.retryable,
        retry_after=failure.retry_after_s,
        # an endpoint that answered with an error has stored nothing of the request
        replay_safety="safe" if failure.status is not None else "unknown",
        normalized=normalized,
        response_started=failure.events_seen > 0,
    )
    return normalized, advice


def _of_foreign(error: Exception) -> ModelRetryNormalizedError:
    def read(name: str, kind: type) -> Any:
        value = getattr(error, name, None)
        return value if isinstance(value, kind) else None

    return ModelRetryNormalizedError(
        status_code=read("status_code", int),
        error_code=read("code", str),
        message=error_text(error),
        request_id=read("request_id", str),
        is_network_error=isinstance(error, ConnectionError),
        is_timeout=isinstance(error, TimeoutError),
    )
