"""Changes that follow from an effect. They apply to the newest state, which may have changed."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from sandstream_bus.wire.sessions import SessionState

Change = Callable[[SessionState], SessionState | None]
"""The next state; None: the change does not concern the session any more."""

replace = msgspec.structs.replace
