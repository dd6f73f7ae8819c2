"""What a test may change about this vendor, with ``vendor.configure(name=value)``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass
class Settings:
    """The behaviour of the account and its region."""

    start_delay_s: float = 0.0
    """How long a box is ``creating`` or ``starting``. With 0 the call returns when it is started,
    as with a warm pool; otherwise the call returns at once."""
    stop_delay_s: float = 0.0
    """How long a box is ``stopping`` or ``pausing``."""
    destroy_delay_s: float = 0.0
    """How long a box is ``destroying``, found by its id, before it answers 404."""
    snapshot_delay_s: float = 0.0
    """How long a box is ``snapshotting`` or ``forking``."""
    list_lag_s: float = 0.0
    """``GET /sandbox`` reads a search index, which learns of every change this much later."""
    max_boxes: int | None = None
    """A further box exceeds the organization's limit."""
    suspended: str | None = None
    """The organization is suspended for this reason: no box is created or started."""
    sandbox_class: str = "container"
    """The class of new boxes. ``linux-vm`` can pause and fork, ``container`` cannot."""
    label_filter: bool = True
    """Whether ``GET /sandbox`` heeds ``labels``."""
    events: bool = True
    """Whether the event socket accepts connections. Without it the SDK polls."""
    python: bool = True
    """Whether new boxes have a Python."""
    sudo: bool = True
    """Whether the user of new boxes may become root without a password."""
    extra_dirs: tuple[str, ...] = ()
    """Directories, besides the home, that new boxes may write to."""
    broken_images: tuple[str, ...] = ()
    """Images whose build fails."""
    minute_s: float = 60.0
    """The length of the minutes in which intervals and times to live are counted."""
    clock_ahead_s: float = 0.0
    """The times of creation that the vendor tells are so much later; less than 0: earlier."""
    dead_session_hangs: bool = False
    """Older daemons never answer a synchronous command whose session's shell has ended; newer ones
    answer 410."""
    toolbox_forgets_deleted: bool = False
    """Once its caches expire, the proxy answers 401 for a deleted box; before, 404."""

    def change(self, changes: dict[str, Any]) -> None:
        """Set the named fields.

        Raises:
            ValueError: there is no such setting.
        """
        names = {field.name for field in dataclasses.fields(self)}
        if unknown := sorted(set(changes) - names):
            raise ValueError(f"daytona has no settings {unknown}; it has {sorted(names)}")
        for name, value in changes.items():
            setattr(self, name, tuple(value) if isinstance(value, list) else value)
