"""What the exceptions of the E2B SDK mean.

The SDK drops the headers and the error code of an answer, which say when to come back and what has
become of an order. The answer itself is a variable of the SDK's function that raised, so it is
read from there. Without it, the status and the text decide.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from sandstream_providers.hosted.errors import (
    NoSuchBox,
    QuotaReached,
    VendorBusy,
    VendorRefused,
    VendorSilent,
)
from sandstream_providers.interface import NoSpace, ProviderError

Translate = Callable[[str, Exception], ProviderError]

_NOT_MADE = {
    "sandbox_capacity_unavailable",
    "sandbox_placement_timeout",
    "sandbox_no_compatible_node",
    "sandbox_create_failed",
}
"""Error codes by which E2B says that no box was made, and that we may ask again."""
_NEVER_MADE = "sandbox_create_refused"
_IN_PROGRESS, _MISMATCH = "idempotency_in_progress", "idempotency_request_mismatch"
_QUOTA_WORDS = "concurrent"
_KEY_ADVICE = (
    "check E2B_API_KEY, and that it belongs to the engine of E2B_API_URL or E2B_DOMAIN if one of "
    "them is set"
)


class Undecided(VendorSilent):
    """E2B does not say what has become of an order: it may not know, or its box has ended."""


class Answer(NamedTuple):
    """What the vendor said, as far as it is known."""

    status: int
    """0: there was no answer, or the SDK does not show it."""
    code: str
    message: str
    retry_after_s: float | None = None


def answer_of(error: BaseException) -> Answer:
    response = _response(error)
    if response is None:
        return Answer(getattr(error, "status_code", None) or 0, "", str(error))
    try:
        body = json.loads(response.content or b"{}")
    except ValueError:
        body = {}
    if not isinstance(body, dict):
        body = {}
    message = str(body.get("message") or error)
    after = str(response.headers.get("Retry-After", ""))
    return Answer(
        int(response.status_code),
        str(body.get("error_code", "")),
        message,
        float(after) if after.isdecimal() else None,
    )


def _response(error: BaseException) -> Any:
    found = None
    trace = error.__traceback__
    while trace is not None:
        for name in ("res", "response"):
            value = trace.tb_frame.f_locals.get(name)
            if hasattr(value, "status_code") and hasattr(value, "content"):
                found = value
        trace = trace.tb_next
    return found


def translated(what: str, error: Exception) -> ProviderError:
    """An exception of a call to the control plane.

    Args:
        what: What was asked for: "pause the sandbox".
        error: Raised by the SDK.
    """
    import e2b

    answer = answer_of(error)
    said = f"E2B did not {what}: {answer.message}"
    if isinstance(error, e2b.AuthenticationException):
        return VendorRefused(f"E2B refuses the key; {_KEY_ADVICE}: {answer.message}")
    match answer.status:
        case 401:
            return VendorRefused(f"E2B refuses the key; {_KEY_ADVICE}: {answer.message}")
        case 402 | 403:
            return VendorRefused(f"this account may not {what}: {answer.message}")
        case 404:
            return NoSuchBox(said)
        case 409:  # in the middle of another change
            return VendorBusy(said, retry_after_s=answer.retry_after_s)
        case 429 if _QUOTA_WORDS in answer.message.lower():
            return QuotaReached(
                f"E2B did not {what}, because the account has as many running sandboxes as it may "
                f"have: {answer.message}"
            )
        case 429:
            return VendorBusy(said, retry_after_s=answer.retry_after_s)
        case status if status >= 500:
            return VendorBusy(said, retry_after_s=answer.retry_after_s)
        case status if status >= 400:
            return ProviderError(said)
    if isinstance(error, e2b.NotFoundException):
        return NoSuchBox(said)
    if isinstance(error, e2b.RateLimitException | e2b.ServiceBusyException):
        return VendorBusy(said)
    if isinstance(error, e2b.NotEnoughSpaceException):
        return NoSpace(said)
    if isinstance(error, e2b.InvalidArgumentException | e2b.TemplateException):
        return ProviderError(said)
    return VendorSilent(f"{what}: no usable answer from E2B ({type(error).__name__}: {error})")


def translated_order(what: str, error: Exception) -> ProviderError:
    """An exception of a call that makes a box: a box that was made must not be forgotten."""
    import e2b

    answer = answer_of(error)
    said = f"E2B did not {what}: {answer.message}"
    match answer.status:
        case 404:
            return ProviderError(f"{said}. Does the account have that template?")
        case 409:
            text = answer.message.lower()
            if answer.code == _IN_PROGRESS or "in progress" in text:
                return VendorSilent(f"{said} (an earlier request for it is under way)")
            if answer.code != _MISMATCH:  # the box may have ended, or it may still be made
                return Undecided(said)
            return _ordered_differently(said)
        case 422:
            return _ordered_differently(said)
        case status if status >= 500 and answer.code == _NEVER_MADE:
            return ProviderError(said)
        case status if status >= 500 and status != 503 and answer.code not in _NOT_MADE:
            return VendorSilent(f"{said}. Whether there is a sandbox is unknown")
    if type(error) is e2b.SandboxException and not answer.status:
        return ProviderError(said)  # an MCP gateway that did not start; its box was killed
    return translated(what, error)


def _ordered_differently(said: str) -> ProviderError:
    return ProviderError(
        f"{said}. The same sandbox was ordered before, with other options: its template, "
        "metadata, network or time-out have changed since"
    )


def is_away(error: Exception) -> bool:
    """Did the vendor's proxy not find the box, or not reach it? Then it may be gone or asleep."""
    import e2b

    return isinstance(
        error,
        e2b.SandboxNotRunningException | e2b.SandboxUnreachableException | e2b.NotFoundException,
    )


def is_of_token(error: Exception) -> bool:
    """Does the box refuse the token that came with it?"""
    import e2b

    return isinstance(error, e2b.AuthenticationException)


def is_unknown(error: Exception) -> bool:
    """Does the engine not have this call at all?"""
    return "unimplemented" in str(error).lower()


def is_too_early(error: Exception) -> bool:
    """Was the request answered before it came to the box?"""
    return "port is not open" in str(error)
