"""What outsiders say to a run: answers, more input, a wish that it stops.

Their subjects are open to more people than the rest of the log. So a message there counts only if
it is what its subject promises: a slip of the pen must not end the run, and whoever may answer a
question may not write its results. Anything else stays in the log and says nothing.
"""

from __future__ import annotations

from msgspec import Raw

from sandstream_bus.codec import Codec
from sandstream_bus.errors import ObjectMissing, UndecodableMessage
from sandstream_bus.messages import ApprovalDecided, CancelRequested, InputStaged, RunEvent
from sandstream_bus.subjects import Subjects

_PROMISED: dict[tuple[str, str], type[RunEvent]] = {
    ("approval", "decided"): ApprovalDecided,
    ("input", ""): InputStaged,
    ("cancel", ""): CancelRequested,
}


def is_remark(subjects: Subjects, subject: str) -> bool:
    """May anybody write here, who has no other right to the run?"""
    return _promised(subjects, subject) is not None


async def read_event(codec: Codec, subjects: Subjects, subject: str, data: bytes) -> RunEvent:
    """An event of a run's log; a remark is :class:`UndecodableMessage` if it is something else."""
    promised = _promised(subjects, subject)
    if promised is None:
        return await codec.run_event(data)
    try:
        event = await codec.run_event(data)
    except ObjectMissing as error:
        raise UndecodableMessage(str(error)) from error
    if not isinstance(event, promised):
        kind = event.__struct_config__.tag
        raise UndecodableMessage(f"{kind} is out of place on {subject}")
    if isinstance(event, InputStaged) and not _is_input(event.input):
        raise UndecodableMessage("the items of an input are JSON objects")
    return event


def _is_input(input: str | list[Raw]) -> bool:
    return isinstance(input, str) or all(bytes(item)[:1] == b"{" for item in input)


def _promised(subjects: Subjects, subject: str) -> type[RunEvent] | None:
    where = subjects.parse_run(subject)
    return _PROMISED.get((where.kind, where.detail))
