"""How long, how safely and in how much space an installation keeps data: values and their limits.

Does not know the server. The streams themselves hold the actual settings of an installation;
``installation.py`` reads these values from them.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from sandstream_bus.counts import numbered
from sandstream_bus.errors import BusError

_NS = 1_000_000_000
_DAY_S = 86_400
_HOUR_S = 3_600

MIN_AGE_DAYS = _HOUR_S / _DAY_S
"""Retries and sandbox replies may need an hour; the duplicate window is ten minutes."""
SHORT_AGE_DAYS = 1.0
"""With less, an approval that waits overnight loses its run."""
MAX_AGE_DAYS = 36_500.0
MIN_BYTES = 256 * 1024 * 1024
"""With less, the smallest share has no room for one big object."""
MAX_REPLICAS = 5
"""JetStream's own limit."""

LOG_SHARE = 0.5
_SHARES = {"_LOG": LOG_SHARE, "_REQUESTS": 0.03, "-objects": 0.33, "-memory": 0.08}
_OTHER_SHARE = 0.012
"""The share of each other stream; five of them fill the rest."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class InvalidRetention(BusError):
    """A setting of the installation that makes no sense."""

    code = "bus.invalid_retention"


class Retention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The operator's retention settings for all streams of an installation."""

    replicas: int = 1
    """The number of copies of each stream."""
    max_age_days: float = 30.0
    """The age at which events expire; 0: never."""
    max_bytes: int = -1
    """The space of all streams together on each server; -1: no limit."""


class RetentionChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The requested changes; ``None`` leaves a value unchanged."""

    replicas: int | None = None
    max_age_days: float | None = None
    max_bytes: int | None = None

    def over(self, base: Retention) -> Retention:
        """The base with the requested changes."""
        return msgspec.structs.replace(base, **self.given())

    def given(self) -> dict[str, Any]:
        """Only the requested changes."""
        return {key: it for key, it in msgspec.structs.asdict(self).items() if it is not None}

    def check(self) -> None:
        """Raise :class:`InvalidRetention` for values that no installation can work with."""
        if self.replicas is not None:
            _check_replicas(self.replicas)
        if self.max_age_days is not None:
            _check_age(self.max_age_days)
        if self.max_bytes is not None and 0 < self.max_bytes < MIN_BYTES:
            raise InvalidRetention(
                f"{self.max_bytes} bytes for all streams are too few: at least {MIN_BYTES} "
                "(256 MiB), or 0 for no limit"
            )
        if self.max_bytes is not None and self.max_bytes < -1:
            raise InvalidRetention(f"the limit of {self.max_bytes} bytes is below zero")


def _check_replicas(replicas: int) -> None:
    if not 1 <= replicas <= MAX_REPLICAS:
        raise InvalidRetention(
            f"{replicas} replicas: NATS keeps from 1 to {MAX_REPLICAS} copies of a stream"
        )


def _check_age(days: float) -> None:
    if not math.isfinite(days) or days < 0:
        raise InvalidRetention(f"an age of {days} days has no meaning; 0 keeps events for ever")
    if days > MAX_AGE_DAYS:
        raise InvalidRetention(
            f"an age of {days:g} days is above {MAX_AGE_DAYS:g}; 0 keeps events for ever"
        )
    if 0 < days < MIN_AGE_DAYS:
        raise InvalidRetention(
            f"an age of {days:g} days is below one hour ({MIN_AGE_DAYS:.3f} days): runs would lose "
            "their events while they retry or wait; 0 keeps events for ever"
        )


def parse_bytes(text: str) -> int:
    """Parse a size such as ``20GB``, ``512MiB`` or ``1073741824``. 0 stays 0: no limit."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise InvalidRetention(f"{text!r} is not a size: write 20GB, 512MiB, or a number of bytes")
    number, unit, binary = found.groups()
    base = 1024 if binary else 1000
    return int(float(number) * base ** _POWERS[unit.upper()])


def age_ns(days: float, *, longer_days: float = 0.0) -> int:
    """``max_age`` for JetStream. There, too, 0 means no limit, and cannot be made longer."""
    return int((days + longer_days) * _DAY_S * _NS) if days > 0 else 0


def share_bytes(stream: str, total: int) -> int:
    """The share of a stream in the total space; -1: no limit."""
    if total <= 0:
        return -1
    for ending, share in _SHARES.items():
        if stream.endswith(ending):
            return int(total * share)
    return int(total * _OTHER_SHARE)


def retention_of(log: dict[str, Any]) -> Retention:
    """The installation's settings, read from the configuration of its log."""
    limit = int(log.get("max_bytes", -1))
    return Retention(
        replicas=int(log.get("num_replicas", 1)),
        max_age_days=int(log.get("max_age", 0)) / (_DAY_S * _NS),
        max_bytes=round(limit / LOG_SHARE) if limit > 0 else -1,
    )


# --- text -----------------------------------------------------------------------------------------


def days_text(days: float) -> str:
    """``30 days``, ``1 hour``, ``for ever``."""
    if days <= 0:
        return "for ever"
    number, unit = (days, "day") if days >= 1 else (days * 24, "hour")
    return numbered(number, unit)


def bytes_text(count: int) -> str:
    """``20 GB``; ``no limit`` for -1 and 0."""
    if count <= 0:
        return "no limit"
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if count >= 1000**power:
            return f"{count / 1000**power:.4g} {unit}"
    return numbered(count, "byte")


def replicas_text(count: int) -> str:
    return numbered(count, "replica")


def retention_text(retention: Retention) -> str:
    """All settings as a short text."""
    limit = bytes_text(retention.max_bytes)
    size = "no limit of size" if retention.max_bytes <= 0 else f"at most {limit}"
    age = "kept for ever" if retention.max_age_days <= 0 else days_text(retention.max_age_days)
    return f"{replicas_text(retention.replicas)}, {age}, {size}"
