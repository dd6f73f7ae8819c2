"""Remarks: messages of outside users to a run, such as decisions, input and cancellations.

More users may write their subjects than the rest of the log. So a message there counts only if it
has the type of its subject: a mistake must not end the run, and a user who may decide on approvals
must not write results. Other messages stay in the log and are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from sandstream_bus.errors import UndecodableMessage
from sandstream_bus.logs.codec import Codec
from sandstream_bus.wire.headers import MSG_ID
from sandstream_bus.wire.messages import ApprovalDecided, CancelRequested, InputStaged, RunEvent
from sandstream_bus.wire.subjects import Subjects

_PROMISED: dict[tuple[str, str], type[RunEvent]] = {
    ("approval", "decided"): ApprovalDecided,
    ("input", ""): InputStaged,
    ("cancel", ""): CancelRequested,
}


def is_remark(subjects: Subjects, subject: str) -> bool:
    """May users without other rights to the run write this subject?"""
    return _promised(subjects, subject) is not None


def is_stray(subjects: Subjects, subject: str, headers: Mapping[str, str]) -> bool:
    """Is an undecodable message without meaning for its run?

    Remarks come from people, who make mistakes. All messages of actors have a message id. A message
    without one comes from a server, which sends its acknowledgements to the reply subject that a
    publisher chose.
    """
    return MSG_ID not in headers or is_remark(subjects, subject)


async def read_event(codec: Codec, subjects: Subjects, subject: str, data: bytes) -> RunEvent:
    """An event of a run's log; raises :class:`UndecodableMessage` for a remark of a wrong type."""
    promised = _promised(subjects, subject)
    if promised is None:
        return await codec.run_event(data)
    event = await codec.run_event(data)
    if not isinstance(event, promised):
        kind = event.__struct_config__.tag
        raise UndecodableMessage(f"{kind} is out of place on {subject}")
    if isinstance(event, InputStaged) and not is_input(event.input):
        raise UndecodableMessage("the items of an input are JSON objects")
    return event


def is_input(input: str | list[Raw]) -> bool:
    """Is it valid input for a model?"""
    return isinstance(input, str) or all(bytes(item)[:1] == b"{" for item in input)


def _promised(subjects: Subjects, subject: str) -> type[RunEvent] | None:
    where = subjects.parse_run(subject)
    return _PROMISED.get((where.kind, where.detail))
