"""Checks requests of outside users about runs and memories before they are written to the log.

Requests have their own stream (``<p>.ask.…``), so no content and no header of an outside user
reaches the log unchecked. The check needs no read: the subject names the user, and the run's id
names its owner. A refused request is parked with the reason.
"""

from __future__ import annotations

from typing import assert_never

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
from sandstream_bus.wire.subjects import (
    SHARED,
    AskSubject,
    RunId,
    Subjects,
    user_of,
)

from sandstream_actors.harness.retries import retry_run
from sandstream_actors.harness.retry_plan import CannotRetry
from sandstream_actors.run.budgets import smaller
from sandstream_actors.run.state import RunState

_FROM_SERVER = (h.STREAM, h.SEQUENCE, h.SUBJECT)
"""The server adds these headers to a stored message that a client reads. A reader can choose the
reply subject; without this check, it could have a stored message published as a request of another
user.
"""


class AskIntake:
    """Checks users' requests and writes the permitted ones to the log."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def take(self, delivery: Delivery) -> None:
        """Forward a permitted request. Raises :class:`MessageError` for a request that must be
        parked.
        """
        ask = self._bus.subjects.parse_ask(delivery.subject)
        if any(name in delivery.headers for name in _FROM_SERVER):
            raise UndecodableMessage("this is a copy of a stored message, sent by the server")
        if ask.family == "run":
            _check_owner(ask)
        message = _read(ask, delivery.data)
        # derived from the request's sequence and time, not from the message id that the user chose
        msg_id = f"ask:{delivery.sequence}:{delivery.time_ns}"
        if isinstance(message, RetryRequested):
            run, by = RunId(ask.name), "" if ask.user == SHARED else ask.user
            wanted = await self._within_limits(run, message)
            await retry_run(self._bus, run, wanted, msg_id=msg_id, by=by)
            return
        await self._bus.connection.publish(
            _target(self._bus.subjects, ask, message),
            await self._bus.codec.encode(message),
            msg_id=msg_id,
            headers=_passed_on(delivery),
            budget_s=None,
        )

    async def _within_limits(self, run: RunId, wanted: RetryRequested) -> RetryRequested:
        """A user may raise a run's budget, but not above the limit of its worker."""
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
        whom = "no user" if owner == SHARED else f"the user {owner}"
        raise UndecodableMessage(
            f"run {ask.name} belongs to {whom}, so {ask.user} may not change it. "
            f"A permitted user publishes to <prefix>.ask.{owner}.run.{ask.name}.{ask.kind}"
        )


Forwarded = CancelRequested | InputStaged | ApprovalDecided | MergeRequested
"""Requests that are published under another subject as they are."""
Ask = Forwarded | RetryRequested


def _target(subjects: Subjects, ask: AskSubject, message: Forwarded) -> str:
    match message:
        case CancelRequested():
            return subjects.cancel(ask.name)
        case InputStaged():
            return subjects.input(ask.name)
        case ApprovalDecided():
            return subjects.approval_decided(ask.name)
        case MergeRequested():
            return subjects.memory_merge_at(ask.name)
        case _:
            assert_never(message)


def _read(ask: AskSubject, data: bytes) -> Ask:
    """The message, if it fits its subject; with the name of the requesting user."""
    make = _KINDS[ask.kind]
    message = _strict(make, data)
    by = {} if ask.user == SHARED else {"by": ask.user}
    match message:
        case InputStaged():
            if not is_input(message.input):
                raise UndecodableMessage("the items of an input are JSON objects")
            return msgspec.structs.replace(message, **by)
        case ApprovalDecided():
            return msgspec.structs.replace(message, expired=False, **by)
        case CancelRequested():  # its other fields belong to the harness
            return CancelRequested(mode=message.mode, reason=message.reason)
        case RetryRequested():
            return message
        case MergeRequested():
            return MergeRequested(reason=message.reason)
        case _:
            assert_never(message)


_KINDS: dict[str, type[Ask]] = {
    "cancel": CancelRequested,
    "retry": RetryRequested,
    "input": InputStaged,
    "approval": ApprovalDecided,
    "merge": MergeRequested,
}


def _strict(kind: type[Ask], data: bytes) -> Ask:
    """Decode a message of a person or of another program: unknown fields are errors."""
    tag = kind.__struct_config__.tag
    try:
        given = msgspec.json.decode(data)
        if not isinstance(given, dict):
            raise UndecodableMessage("the message is not a JSON object")
        # the type may be omitted: the subject implies it
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
