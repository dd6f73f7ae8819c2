"""Settings of a session."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandstream.exceptions import UserError


@dataclass
class SessionSettings:
    """How a session is read.

    Example:
        session = SQLiteSession("ann", session_settings=SessionSettings(limit=50))
    """

    limit: int | None = None
    """The number of latest items to read; None: all."""

    def __post_init__(self) -> None:
        if self.limit is not None and (
            not isinstance(self.limit, int) or isinstance(self.limit, bool)
        ):
            raise UserError(f"SessionSettings.limit must be an int or None; it is {self.limit!r}")

    def resolve(self, override: SessionSettings | Mapping[str, Any] | None) -> SessionSettings:
        """Combine these settings with others.

        Args:
            override: Settings whose values win where they are not ``None``.

        Returns:
            New settings, or these if there is nothing to override.
        """
        if override is None:
            return self
        over = SessionSettings.coerce(override)
        given = {name: value for name, value in over.to_dict().items() if value is not None}
        return dataclasses.replace(self, **given)

    def to_dict(self) -> dict[str, Any]:
        """All settings by their names."""
        return dataclasses.asdict(self)

    @classmethod
    def coerce(cls, value: SessionSettings | Mapping[str, Any] | None) -> SessionSettings:
        """Return settings unchanged, or make them from a dict.

        Args:
            value: Settings, a dict with their names, or ``None`` for the defaults.

        Returns:
            The settings.

        Raises:
            UserError: ``value`` is neither, or the dict has an unknown key.
        """
        if value is None:
            return cls()
        if isinstance(value, SessionSettings):
            return value
        if not isinstance(value, Mapping):
            raise UserError(
                f"session settings must be a SessionSettings or a dict, not {type(value).__name__}"
            )
        unknown = sorted(set(value) - {"limit"})
        if unknown:
            raise UserError(f"SessionSettings has no field {', '.join(unknown)}; it knows limit")
        return cls(**value)


def resolve_session_limit(
    explicit: int | None, settings: SessionSettings | Mapping[str, Any] | None
) -> int | None:
    """The number of items to read: the caller's, else that of the settings, else all (None)."""
    return SessionSettings.coerce(settings).limit if explicit is None else explicit


def latest(items: list[Any], limit: int | None) -> list[Any]:
    """The latest items. As in SQL, a negative limit means no limit."""
    if limit is None or limit < 0:
        return items
    return items[-limit:] if limit else []
