"""Encodes and decodes messages; a message that is too big for the log goes to the object store.

A message above ``INLINE_LIMIT_BYTES`` is stored as an object, and a :class:`Claim` takes its place
on the subject. Readers get the original message.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from sandstream_bus.errors import (
    ContentMissing,
    ObjectDenied,
    ObjectMissing,
    PayloadTooLarge,
    PermissionDenied,
    UndecodableMessage,
    UnknownMessage,
)
from sandstream_bus.nats.objects import Objects
from sandstream_bus.wire.conversations import ConversationCompacted, ConversationEvent
from sandstream_bus.wire.conversations import Message as ConversationMessage
from sandstream_bus.wire.memories import MemoryEvent
from sandstream_bus.wire.memories import Message as MemoryMessage
from sandstream_bus.wire.messages import AgentRegistered, Claim, Message, Parked, RunEvent, Task
from sandstream_bus.wire.sandboxes import Message as SandboxMessage
from sandstream_bus.wire.sandboxes import SandboxEvent, SandboxReply, SandboxRequest
from sandstream_bus.wire.sessions import SessionMessage
from sandstream_bus.wire.specs import Budget
from sandstream_bus.wire.traces import Message as TraceMessage
from sandstream_bus.wire.traces import TraceEvent

INLINE_LIMIT_BYTES = 128 * 1024
MESSAGE_LIMIT_BYTES = 32 * 1024 * 1024

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding bytes that are not JSON: invalid UTF-8, endless nesting."""

T = TypeVar("T")


class _Peek(msgspec.Struct):
    type: str = ""


_encode = msgspec.json.Encoder().encode
_run_event = msgspec.json.Decoder[RunEvent | Claim](RunEvent | Claim)
_registered = msgspec.json.Decoder[AgentRegistered | Claim](AgentRegistered | Claim)
_sandbox_event = msgspec.json.Decoder[SandboxEvent | Claim](SandboxEvent | Claim)
_sandbox_request = msgspec.json.Decoder[SandboxRequest | Claim](SandboxRequest | Claim)
_sandbox_reply = msgspec.json.Decoder[SandboxReply | Claim](SandboxReply | Claim)
_conversation_event = msgspec.json.Decoder[ConversationEvent | Claim](ConversationEvent | Claim)
_compacted = msgspec.json.Decoder[ConversationCompacted | Claim](ConversationCompacted | Claim)
_trace_event = msgspec.json.Decoder[TraceEvent | Claim](TraceEvent | Claim)
_memory_event = msgspec.json.Decoder[MemoryEvent | Claim](MemoryEvent | Claim)
_session = msgspec.json.Decoder[SessionMessage | Claim](SessionMessage | Claim)
_task = msgspec.json.Decoder(Task)
_claim = msgspec.json.Decoder(Claim)
_parked = msgspec.json.Decoder(Parked)
_peek = msgspec.json.Decoder(_Peek)


def peek_type(data: bytes) -> str:
    """The message's ``type``, read without decoding the rest; empty if it has none."""
    try:
        return _peek.decode(data).type
    except NOT_JSON:
        return ""


class Codec:
    """Encodes and decodes for one installation; needs its object store for big messages."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def encode(
        self,
        message: Message | SandboxMessage | ConversationMessage | TraceMessage | MemoryMessage,
    ) -> bytes:
        return await self._claim_if_big(_encode(message), str(message.__struct_config__.tag))

    async def _claim_if_big(self, data: bytes, kind: str) -> bytes:
        if len(data) <= INLINE_LIMIT_BYTES:
            return data
        if len(data) > MESSAGE_LIMIT_BYTES:
            raise PayloadTooLarge(f"a {kind} message", len(data), MESSAGE_LIMIT_BYTES)
        digest = await self._objects.put(data)
        return _encode(Claim(of=kind, digest=digest, size_bytes=len(data)))

    async def run_event(self, data: bytes) -> RunEvent:
        message: RunEvent = await self._decode(_run_event, data)
        return message

    async def task(self, data: bytes, *, may_claim: bool = True) -> Task:
        """A task from any user, or a claim for one.

        ``may_claim``: False for users who cannot write objects; they must not have others' read
        either.
        """
        if may_claim and peek_type(data) == "claim":
            data = await self._claimed(decode(_claim, data))
        try:
            data.decode()  # items are passed to the model unchanged and not parsed
        except UnicodeDecodeError as error:
            raise UndecodableMessage(f"the message is not valid UTF-8: {error}") from error
        task = decode(_task, data)
        if task.budget is not None:
            _check_budget(data)
        return task

    async def encode_task(self, task: Task) -> bytes:
        return await self._claim_if_big(_encode(task), "task")

    async def registration(self, data: bytes) -> AgentRegistered:
        message: AgentRegistered = await self._decode(_registered, data)
        return message

    async def sandbox_event(self, data: bytes) -> SandboxEvent:
        event: SandboxEvent = await self._decode(_sandbox_event, data)
        return event

    async def sandbox_request(self, data: bytes) -> SandboxRequest:
        request: SandboxRequest = await self._decode(_sandbox_request, data)
        return request

    async def sandbox_reply(self, data: bytes) -> SandboxReply:
        reply: SandboxReply = await self._decode(_sandbox_reply, data)
        return reply

    async def conversation_event(self, data: bytes) -> ConversationEvent:
        event: ConversationEvent = await self._decode(_conversation_event, data)
        return event

    async def conversation_snapshot(self, data: bytes) -> ConversationCompacted:
        snapshot: ConversationCompacted = await self._decode(_compacted, data)
        return snapshot

    async def trace_event(self, data: bytes) -> TraceEvent:
        event: TraceEvent = await self._decode(_trace_event, data)
        return event

    async def memory_event(self, data: bytes) -> MemoryEvent:
        event: MemoryEvent = await self._decode(_memory_event, data)
        return event

    async def session_message(self, data: bytes) -> SessionMessage:
        message: SessionMessage = await self._decode(_session, data)
        return message

    async def _decode(self, decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
        message = decode(decoder, data)
        if type(message) is Claim:
            message = decode(decoder, await self._claimed(message))
            if type(message) is Claim:
                raise UndecodableMessage("a claim stands for another claim")
        return message

    async def _claimed(self, claim: Claim) -> bytes:
        try:
            return await self._objects.get(claim.digest)
        except PermissionDenied as error:
            raise ObjectDenied(
                f"a {claim.of} of {claim.size_bytes} bytes is too big for the log, and this user "
                f"may not read the object store that has it: {error}"
            ) from error
        except ObjectMissing as error:
            raise ContentMissing(str(error)) from error


def peek_claim(data: bytes) -> Claim | None:
    """The message as a claim; None if it is another message."""
    return decode(_claim, data) if peek_type(data) == "claim" else None


def decode(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """Decode; distinguishes an unknown type from a broken message."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        if "Invalid value" in str(error) and "$.type" in str(error):
            raise UnknownMessage(f"the message type {peek_type(data)!r} is unknown here") from error
        raise UndecodableMessage(f"the message does not fit its schema: {error}") from error
    except NOT_JSON as error:
        raise UndecodableMessage(f"the message is not valid JSON: {error}") from error


class _Budgeted(msgspec.Struct):
    budget: dict[str, Any]


_budgeted = msgspec.json.Decoder(_Budgeted)


def _check_budget(task: bytes) -> None:
    """A misspelled limit would have no effect. In the log, unknown fields may be newer ones."""
    unknown = sorted(set(decode(_budgeted, task).budget) - set(Budget.__struct_fields__))
    if unknown:
        raise UndecodableMessage(
            f"the message does not fit its schema: Object contains unknown field "
            f"`{unknown[0][:80]}` - at `$.budget`"
        )


def decode_parked(data: bytes) -> Parked:
    return decode(_parked, data)


def encode(message: Any) -> bytes:
    """Plain JSON, without a claim."""
    return _encode(message)
