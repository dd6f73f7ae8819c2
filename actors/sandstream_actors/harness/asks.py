"""What people outside want of runs and memories: checked here, and only then written to the log.

Their messages have a stream of their own (``<p>.ask.…``), so nothing that they write, and no header
that they set, touches the log before somebody has looked at it. A look costs no read: the subject
says who asks, and the run's id says whom the run belongs to. What is refused is parked with the
reason.
"""

from __future__ import annotations

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.errors import UndecodableMessage
from sandstream_bus.logs.codec import NOT_JSON
from sandstream_bus.logs.remarks import is_input
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.wire import headers as h
from sandstream_bus.wire.memories import MergeRequested
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    CancelRequested,
    InputStaged,
    RetryRequested,
)
from sandstream_bus.wire.subjects import SHARED, AskSubject, RunId, Subjects, user_of

from sandstream_actors.harness.retries import retry_run
from sandstream_actors.harness.retry_plan import CannotRetry
from sandstream_actors.run.budgets import smaller
from sandstream_actors.run.state import RunState

_FROM_SERVER = (h.STREAM, h.SEQUENCE, h.SUBJECT)
"""The server adds these to a stored message that somebody reads. With a reply subject of the
reader's choice, a message of the log would be asked for by whoever that subject names.
"""


class AskIntake:
    """Checks what users ask, and writes it down where it counts."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def take(self, delivery: Delivery) -> None:
        """Send on what a user may ask. Raises :class:`MessageError` for what is to be parked."""
        ask = self._bus.subjects.parse_ask(delivery.subject)
        if any(name in delivery.headers for name in _FROM_SERVER):
            raise UndecodableMessage("this is a copy of a stored message, sent by the server")
        if ask.family == "run":
            _check_owner(ask)
        message = _read(ask, delivery.data)
        # the ask's own place and time: whatever message id the user chose stays outside
        msg_id = f"ask:{delivery.sequence}:{delivery.time_ns}"
        if isinstance(message, RetryRequested):
            run, by = RunId(ask.name), "" if ask.user == SHARED else ask.user
            wanted = await self._within_limits(run, message)
            await retry_run(self._bus, run, wanted, msg_id=msg_id, by=by)
            return
        await self._bus.connection.publish(
            _target(self._bus.subjects, ask),
            await self._bus.codec.encode(message),
            msg_id=msg_id,
            headers=_passed_on(delivery),
            budget_s=None,
        )

    async def _within_limits(self, run: RunId, wanted: RetryRequested) -> RetryRequested:
        """A user may give a run a larger budget, but not more than its worker allows."""
        if wanted.budget is None:
            return wanted
        started = RunState.of(run, await self._bus.log.read(run)).started
        registered = await self._bus.agents.find(started.graph.start) if started else None
        if registered is None:
            raise CannotRetry(f"run {run} has the budget that its program gave it: give no other")
        budget = smaller(wanted.budget, registered.options.budget)
        return msgspec.structs.replace(wanted, budget=budget)


def _check_owner(ask: AskSubject) -> None:
    owner = user_of(ask.name)
    if owner != ask.user:
        whom = "nobody in particular" if owner == SHARED else f"the user {owner}"
        raise UndecodableMessage(
            f"run {ask.name} belongs to {whom}, and {ask.user} asked. "
            f"Whoever may, publishes to <prefix>.ask.{owner}.run.{ask.name}.{ask.kind}"
        )


def _target(subjects: Subjects, ask: AskSubject) -> str:
    match ask.kind:
        case "cancel":
            return subjects.cancel(ask.name)
        case "input":
            return subjects.input(ask.name)
        case "approval":
            return subjects.approval_decided(ask.name)
    return subjects.memory_merge_at(ask.name)


Ask = CancelRequested | RetryRequested | InputStaged | ApprovalDecided | MergeRequested


def _read(ask: AskSubject, data: bytes) -> Ask:
    """The message, if it is what its subject promises; with the name of who asked."""
    make = _KINDS[ask.kind]
    message = _strict(make, data)
    by = {} if ask.user == SHARED else {"by": ask.user}
    if isinstance(message, InputStaged):
        if not is_input(message.input):
            raise UndecodableMessage("the items of an input are JSON objects")
        return msgspec.structs.replace(message, **by)
    if isinstance(message, ApprovalDecided):
        return msgspec.structs.replace(message, expired=False, **by)
    if isinstance(message, CancelRequested):  # its other fields are the harness's own
        return CancelRequested(mode=message.mode, reason=message.reason)
    if isinstance(message, RetryRequested):
        return message
    return MergeRequested(reason=message.reason)


_KINDS: dict[str, type[Ask]] = {
    "cancel": CancelRequested,
    "retry": RetryRequested,
    "input": InputStaged,
    "approval": ApprovalDecided,
    "merge": MergeRequested,
}


def _strict(kind: type[Ask], data: bytes) -> Ask:
    """Decode a message of a person's or of a foreign program's: a slip is an error."""
    tag = kind.__struct_config__.tag
    try:
        given = msgspec.json.decode(data)
        if not isinstance(given, dict):
            raise UndecodableMessage("the message is not a JSON object")
        # the type may be left out: the subject says it
        message = msgspec.json.decode(msgspec.json.encode({"type": tag, **given}), type=kind)
    except NOT_JSON as error:
        raise UndecodableMessage(f"the message does not fit its schema: {error}") from error
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    unknown = sorted(set(given) - known - {"type"})
    if unknown:
        raise UndecodableMessage(
            f"unknown field {unknown[0][:80]!r}; {tag} knows {', '.join(sorted(known))}"
        )
    return message


def _passed_on(delivery: Delivery) -> dict[str, str]:
    trace = delivery.headers.get(h.TRACEPARENT)
    return {h.TRACEPARENT: trace} if trace else {}
