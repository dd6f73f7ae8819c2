"""Events that an observer cannot read: too big for the log, and in an object store that this user
may not read.

An observer continues without such an event and logs that. The end of a run is never left out:
a waiting caller must learn of it.
"""

from __future__ import annotations

import logging

from sandstream_bus.errors import ObjectDenied
from sandstream_bus.logs.codec import peek_claim
from sandstream_bus.nats.leader import Stored
from sandstream_bus.wire.messages import ErrorInfo, RunDone, TokenUsage

logger = logging.getLogger(__name__)


def in_place_of(stored: Stored, error: ObjectDenied) -> RunDone | None:
    """A substitute for an event that this user may not read, or None."""
    claim = peek_claim(stored.data)
    extra = {"subject": stored.subject, "sequence": stored.sequence, "why": str(error)}
    logger.warning("an event is too big to read for this user", extra=extra)
    if claim is None or claim.of != RunDone.__struct_config__.tag:
        return None
    text = f"the run has ended; how, this user may not read: {error}"
    return RunDone(
        status="failed",
        agent="",
        turns=0,
        usage=TokenUsage(),
        error=ErrorInfo(code=error.code, message=text),
    )
