"""The request for which a box did something: which event of which log. The box remembers it."""

from __future__ import annotations

import logging
from typing import NamedTuple

from sandstream_bus.bus import Bus
from sandstream_providers.interface import Box

from sandstream_actors.run.sandbox_record import SandboxRecord

logger = logging.getLogger(__name__)

REUSED = (
    "This sandbox was used before, by a part of the log that was lost. Its files were reset; "
    "commands that ran in it may have had effects elsewhere."
)


class StoredRequest(NamedTuple):
    """The event that asked for a call: a place in the log, and when the event was stored there.

    In a log that was set back, another event gets the same place, but at another time.
    """

    sequence: int
    time_ns: int

    @classmethod
    def of(cls, text: str) -> StoredRequest:
        sequence, _, time_ns = text.partition("@")
        return cls(int(sequence), int(time_ns))

    @property
    def text(self) -> str:
        return f"{self.sequence}@{self.time_ns}"

    async def is_foreign(self, first: str, bus: Bus) -> bool:
        """Does the box know this call from another request, which the log does not contain?

        A call is requested again when its run moves: then both requests are in the log.
        """
        if first == self.text:
            return False
        other = StoredRequest.of(first)
        found = await bus.guard.message_at(other.sequence)
        return found is None or found.time_ns != other.time_ns


async def first_use(bus: Bus, record: SandboxRecord, box: Box) -> tuple[str, str]:
    """The id of a new box's first operation, and a notice if a lost part of the log has used the
    box.
    """
    op = f"{record.sandbox}-g{record.generation}"
    intended = await bus.guard.message_at(record.intended_at)
    if intended is None:
        return op, ""
    request = StoredRequest(record.intended_at, intended.time_ns)
    if not await request.is_foreign(await box.first_request(op, request.text), bus):
        return op, ""
    logger.warning("the box of sandbox %s was used by a lost part of the log", record.sandbox)
    # another id, because the box would treat the old one as done
    return f"{op}-{request.time_ns}", REUSED
