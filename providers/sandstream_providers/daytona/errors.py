"""What Daytona's refusals and broken connections mean, as errors of all hosted providers.

The texts that are looked for are the vendor's own: it has no codes for these cases.
"""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Mapping

from sandstream_providers.daytona.account import KEY_VARIABLE, KEYS_PAGE
from sandstream_providers.hosted.errors import (
    BoxAsleep,
    NoSuchBox,
    QuotaReached,
    VendorBusy,
    VendorRefused,
    VendorSilent,
)
from sandstream_providers.interface import ProviderError

_QUOTA = re.compile(r"\b(quota|limit)s?\b[^.]*\bexceeded|\bexceed\w*\b[^.]*\b(quota|limit)", re.I)
_IN_PROGRESS = "state change in progress"
_NOT_STARTED = "is the sandbox started"
_MOST_SAID = 500


class DaytonaRefused(ProviderError):
    """Daytona said no. ``data["status"]`` is the HTTP status, ``data["said"]`` the reason."""

    code = "provider_refused"

    @property
    def status(self) -> int:
        return int(str(self.data.get("status", 0)))


class Conflict(VendorBusy):
    """The box is in the wrong state for this, or the name is taken."""

    @property
    def is_change(self) -> bool:
        """The box is on its way from one state to another, so this may be asked again later."""
        return _IN_PROGRESS in str(self).lower()


def refusal(
    doing: str, status: int, said: str, headers: Mapping[str, str], *, repeatable: bool
) -> ProviderError:
    """The error that an answer with an error status means.

    Args:
        doing: The attempted operation, as it reads after "cannot".
        status: The HTTP status.
        said: The body of the answer.
        headers: The headers of the answer.
        repeatable: Doing it twice has the same effect as once.
    """
    reason = _reason(said)
    text = f"Daytona cannot {doing}: {reason or f'HTTP status {status}'}"
    if status in (400, 402, 403) and _QUOTA.search(reason):
        return QuotaReached(text, status=status)
    if status == 401:
        return VendorRefused(
            f"{text}. Daytona does not accept the key: set a valid one in {KEY_VARIABLE} where the "
            f"sandbox actor runs ({KEYS_PAGE})",
            status=status,
            said=reason,
        )
    if status in (402, 403):
        text = f"{text}. The account or its key may not do this"
        return VendorRefused(text, status=status, said=reason)
    if _NOT_STARTED in reason.lower():
        return BoxAsleep(text, status=status)
    if status == 404:
        return NoSuchBox(text, status=status)
    if status == 409:
        return Conflict(text, status=status)
    if status == 429 or status == 503:
        return VendorBusy(text, retry_after_s=retry_after_s(headers), status=status)
    if status in (408, 504) or (status >= 500 and not repeatable):
        return VendorSilent(text, status=status)
    if status >= 500:
        return VendorBusy(text, retry_after_s=retry_after_s(headers), status=status)
    return DaytonaRefused(text, status=status, said=reason)


def silence(doing: str, error: BaseException) -> VendorSilent:
    """What a broken connection means."""
    why = str(error) or type(error).__name__
    return VendorSilent(f"no answer from Daytona, which was asked to {doing}: {why}")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long the vendor wants us to wait. Each of its limits may have a header of its own."""
    found = [
        _seconds(value)
        for name, value in headers.items()
        if name.lower() == "retry-after" or name.lower().startswith("retry-after-")
    ]
    return max((it for it in found if it is not None), default=None)


def _seconds(value: str) -> float | None:
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _reason(said: str) -> str:
    """The message in the body of an answer."""
    try:
        body = json.loads(said)
    except ValueError:
        return " ".join(said.split())[:_MOST_SAID]
    if not isinstance(body, dict):
        return ""
    message = body.get("message") or body.get("error") or ""
    if isinstance(message, list):
        message = ", ".join(map(str, message))
    return str(message)[:_MOST_SAID].strip()
