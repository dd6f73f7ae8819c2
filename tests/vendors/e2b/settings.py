"""What a test may change about the E2B server while it runs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal


@dataclass
class Settings:
    """Names for ``VendorServer.configure``; the defaults are those of the hosted vendor."""

    idempotency: bool = True
    """False: an engine that is compatible but ignores the header ``Idempotency-Key``."""
    metadata_filter: bool = True
    """False: an engine that is compatible but lists all boxes, with any metadata."""
    clock_ahead_s: float = 0.0
    """The times that the vendor tells are so much later; less than 0: earlier."""
    list_lag_s: float = 0.0
    """A new box is listed only after this time. Asking for it by its id works at once."""
    concurrent_sandboxes: int = 100
    """Running boxes of one team. Paused boxes do not count."""
    max_hours: int = 24
    """The longest time to live of a running box."""
    sudo: bool = False
    """Whether ``user`` may become root without a password, as in E2B's own templates."""
    create_seconds: float = 0.0
    """How long a box takes to start. A second request with its key meets it in progress."""
    filesystem_resume: bool = True
    """Whether a box that was paused with its memory may be resumed without."""
    stream_end: Literal["reset", "unavailable"] = "reset"
    """How streams end when their box is killed or paused: closed, or with an error message."""
    exit_kept_s: float = 30.0
    """How long the exit code of an ended process can still be asked for."""
    keepalive_s: float | None = None
    """The pause between keepalive events, instead of the one that the client asks for."""

    def change(self, changes: dict[str, Any]) -> None:
        """Apply changes. Raises ``ValueError`` for a setting that does not exist."""
        unknown = set(changes) - {field.name for field in fields(self)}
        if unknown:
            raise ValueError(f"e2b has no settings {sorted(unknown)}")
        for name, value in changes.items():
            setattr(self, name, value)
