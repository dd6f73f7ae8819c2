"""A filter for runs: by status, agent, time, text and metadata. Pure; reads nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import msgspec
from sandstream_bus.wire.messages import DoneStatus, RunStarted

from sandstream._inspect.summaries import RunSummary
from sandstream.exceptions import UserError

OPEN_STATUSES = ("running", "waiting")
STATUSES = (*OPEN_STATUSES, *get_args(DoneStatus))


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A run matches if it meets all given conditions."""

    status: str | None = None
    agent: str | None = None
    """The agent that the run began with, or that it is with now or was with at its end."""
    since: datetime | None = None
    """The run began then or later."""
    until: datetime | None = None
    """The run began before."""
    text: str | None = None
    """A part of its input or output; upper and lower case are equal."""
    metadata: dict[str, str] = {}
    """Values other than strings are compared as JSON: ``3``, ``true``, ``null``."""

    @property
    def has_more_than_status(self) -> bool:
        return bool(self.agent or self.since or self.until or self.text or self.metadata)

    def is_in_time(self, began: str) -> bool:
        """``began`` is a time of the server (RFC 3339)."""
        if self.since is None and self.until is None:
            return True
        try:
            time = datetime.fromisoformat(began)
        except ValueError:
            return False
        return (self.since is None or time >= self.since) and (
            self.until is None or time < self.until
        )

    def may_fit(self, started: RunStarted) -> bool:
        """Can a run that begins so fit? What is only known at its end is not asked."""
        found = started.options.metadata
        return all(key in found and _is(found[key], it) for key, it in self.metadata.items())

    def fits(self, summary: RunSummary, started: RunStarted | None) -> bool:
        """``started``: how the run began, if that is known."""
        if self.status is not None and summary.status != self.status:
            return False
        if not self.is_in_time(summary.started_at):
            return False
        if self.agent is not None:
            first = started.graph.start if started is not None else ""
            if self.agent not in (first, summary.agent):
                return False
        if self.metadata and (started is None or not self.may_fit(started)):
            return False
        return self.text is None or self._has_text(summary, started)

    def _has_text(self, summary: RunSummary, started: RunStarted | None) -> bool:
        wanted = (self.text or "").casefold()
        said = [msgspec.json.decode(it) for it in started.input] if started is not None else []
        return any(wanted in text.casefold() for text in _texts([*said, summary.output]))


def run_filter(
    *,
    status: str | None = None,
    agent: str | None = None,
    since: datetime | timedelta | None = None,
    until: datetime | timedelta | None = None,
    text: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> RunFilter:
    """A filter from what a caller gives; a ``timedelta`` is a time before now.

    Raises:
        UserError: if a value makes no sense.
    """
    if status is not None and status not in STATUSES:
        raise UserError(f"there is no status {status!r}; the statuses are: {', '.join(STATUSES)}")
    for name, value in (("agent", agent), ("text", text)):
        if value is not None and not value.strip():
            raise UserError(f"{name} must not be empty")
    if any(not key for key in metadata or {}):
        raise UserError("a key of the metadata must not be empty")
    now = datetime.now(UTC)
    begin, end = _time("since", since, now), _time("until", until, now)
    if begin is not None and begin > now:
        raise UserError(f"since is in the future ({begin:%Y-%m-%d %H:%M} UTC): no run began yet")
    if begin is not None and end is not None and begin >= end:
        raise UserError(
            f"since ({begin:%Y-%m-%d %H:%M:%S} UTC) must be earlier than until "
            f"({end:%Y-%m-%d %H:%M:%S} UTC)"
        )
    return RunFilter(
        status=status,
        agent=agent,
        since=begin,
        until=end,
        text=text,
        metadata=dict(metadata or {}),
    )


def _time(name: str, value: datetime | timedelta | None, now: datetime) -> datetime | None:
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise UserError(f"{name} must not be a negative time span")
        try:
            return now - value
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise UserError(f"{name} needs a time zone, such as datetime.now(UTC)")
        return value.astimezone(UTC)
    if value is not None:
        raise UserError(f"{name} must be a datetime or a timedelta, not {type(value).__name__}")
    return None


def _is(found: Any, wanted: str) -> bool:
    if isinstance(found, str):
        return found == wanted
    return msgspec.json.encode(found).decode() == wanted


def _texts(value: Any) -> list[str]:
    """All texts in a JSON value; numbers and such as JSON writes them."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for it in value.values() for text in _texts(it)]
    if isinstance(value, list):
        return [text for it in value for text in _texts(it)]
    return [] if value is None else [msgspec.json.encode(value).decode()]
