"""Translate failures on the wire to a `ModelCallError`. Pure: no vendor types, no I/O."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz
from typing import Any

import msgspec

from sandstream_actors.model.interface import ModelCallError, ModelErrorKind

_RETRIED = frozenset({408, 409})
_AUTH = frozenset({401, 403})
_SHOWN_CHARS = 500


def status_failure(
    status: int, headers: Mapping[str, str], content: bytes, where: str
) -> ModelCallError:
    """An HTTP status of 400 or above."""
    error = _error_object(content)
    fields = error if isinstance(error, Mapping) else {"message": error}
    code, said = _text(fields.get("code")), _text(fields.get("message"))
    kind, retryable = _classify(status, code, headers.get("x-should-retry"))
    message = f"{where} answered {status}"
    if said:
        message += f": {said[:_SHOWN_CHARS]}"
    if kind == "refused_auth":
        message += " (check the API key and what it may use)"
    if status == 404:
        message += " (check the name of the model and the base URL)"
    return ModelCallError(
        kind,
        message,
        status=status,
        code=code,
        request_id=headers.get("x-request-id"),
        body=error,
        retry_after_s=retry_after_s(headers),
        retryable=retryable,
    )


def stream_error(error: Any, where: str, request_id: str | None) -> ModelCallError:
    """An error object that arrived as a stream event although the HTTP status was 200."""
    fields = error if isinstance(error, Mapping) else {}
    code, said = _text(fields.get("code")), _text(fields.get("message"))
    kind: ModelErrorKind = "behavior"
    if code == "rate_limit_exceeded":
        kind = "rate_limited"
    elif code in {"server_error", "server_is_overloaded"} or fields.get("type") == "server_error":
        kind = "unavailable"
    elif code == "insufficient_quota":
        kind = "rejected"
    return ModelCallError(
        kind,
        f"{where} broke off the stream: {(said or code or 'no reason given')[:_SHOWN_CHARS]}",
        code=code,
        request_id=request_id,
        body=error,
        retryable=kind in {"rate_limited", "unavailable"},
    )


def malformed(what: str, where: str, request_id: str | None = None) -> ModelCallError:
    """An answer that violates the API; the payload is not repeated."""
    return ModelCallError(
        "behavior",
        f"{where} sent a malformed answer: {what}",
        code="malformed_answer",
        request_id=request_id,
    )


def unsupported(what: str) -> ModelCallError:
    """A request that the chosen API does not support."""
    return ModelCallError("misconfigured", what, code="unsupported")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The delay from ``retry-after-ms`` or ``retry-after`` (seconds or a date)."""
    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            delay = float(value) / divisor
        except ValueError:
            parsed = parsedate_tz(value)
            if parsed is None:
                continue
            delay = mktime_tz(parsed) - time.time()
        if math.isfinite(delay):
            return max(0.0, delay)
    return None


def _classify(status: int, code: str | None, hint: str | None) -> tuple[ModelErrorKind, bool]:
    if status == 429:
        return ("rejected", False) if code == "insufficient_quota" else ("rate_limited", True)
    if status in _RETRIED or status >= 500:
        return "unavailable", hint != "false"
    if status in _AUTH:
        return "refused_auth", False
    return "rejected", hint == "true"


def _error_object(content: bytes) -> Any:
    try:
        body = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = content.decode("utf-8", "replace").strip()
        # Gateways answer with whole HTML pages, which do not belong in an error message.
        return None if not text or text.startswith("<") else {"message": text[:_SHOWN_CHARS]}
    return body.get("error", body) if isinstance(body, dict) else body


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
