"""Contents as span attributes: messages, instructions, arguments, results.

They leave the log only on request and after redaction (redaction.py). Each attribute has a size
limit; omissions are counted in place, and the result is still valid JSON.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_bus.wire.messages import (
    CallFinished,
    CallRequested,
    ModelAnswered,
    RunDone,
    RunStarted,
)

from sandstream_actors.run.state import RunState
from sandstream_actors.secrets.patterns import scrub
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.fold.message_parts import (
    Message,
    Part,
    arguments_of,
    decoded,
    message_of,
    response_of,
    without_bytes,
)
from sandstream_actors.tracing.fold.model_spans import finish_reason
from sandstream_actors.tracing.span import Attributes

MAX_BYTES = 64 * 1024
"""The limit of one attribute."""
MANY_BYTES = 32 * 1024 * 1024
"""The limit of all input of a run's model calls. Each call repeats the earlier conversation; calls
beyond this limit show only the newest part of it (``FEW_BYTES``).
"""
FEW_BYTES = 4 * 1024
MAX_TEXT = 16 * 1024
"""The limit of one text, in characters, so that a long one leaves room for others."""
_MARK = 256
"""Room for the note about omissions."""

_REMEMBERED = 8 * 1024
"""The biggest item that is cached, in bytes."""

_encode = msgspec.json.encode


def chat_contents(state: RunState, answered: ModelAnswered, most: int = MAX_BYTES) -> Attributes:
    """The input and output of a model call. ``state`` is the state before the answer; ``most``
    limits the bytes of the input.
    """
    found: Attributes = {semconv.OUTPUT_MESSAGES: _one(_answer(answered))}
    if state.started is None:
        return found  # the log has lost the beginning: the input is unknown
    found[semconv.INPUT_MESSAGES] = _messages(_request_items(state, answered), most)
    agent = state.agents.get(state.agent_name)
    instructions = agent.instructions if agent else None
    if state.prepared is not None:
        instructions = state.prepared.instructions
    if instructions:
        found[semconv.SYSTEM_INSTRUCTIONS] = _instructions(instructions)
    return found


def tool_contents(call: CallRequested, finished: CallFinished | None) -> Attributes:
    """The arguments and the result of a tool call."""
    found: Attributes = {}
    if call.arguments:
        found[semconv.TOOL_ARGUMENTS] = _value(arguments_of(call.arguments))
    if finished is not None and finished.output:
        found[semconv.TOOL_RESULT] = _value(response_of(decoded(finished.output)))
    return found


def run_contents(started: RunStarted | None, done: RunDone | None) -> Attributes:
    """The input and the final output of a run."""
    found: Attributes = {}
    if started is not None:
        found[semconv.INPUT_MESSAGES] = _messages(started.input)
    if done is not None and done.output:
        output = decoded(done.output)
        text = output if isinstance(output, str) else bytes(done.output).decode(errors="replace")
        reason = "stop" if done.status == "completed" else "error"
        said = _output_message([{"type": "text", "content": without_bytes(text)}], reason)
        found[semconv.OUTPUT_MESSAGES] = _one(said)
    return found


def _request_items(state: RunState, answered: ModelAnswered) -> Sequence[Raw]:
    """The items that the model has read, without input that arrived during the call."""
    if state.prepared is not None and state.prepared.input is not None:
        return state.prepared.input
    items = state.conversation()
    if not answered.upto:
        return items
    later = sum(len(new) for sequence, new in state.staged if sequence > answered.upto)
    return items[: len(items) - later]


def _answer(answered: ModelAnswered) -> Message:
    """Combine all items of an answer into one message: in the conventions, several messages would
    mean several candidates.
    """
    parts = [part for raw in answered.output for part in message_of(raw)["parts"]]
    return _output_message(parts, finish_reason(answered))


def _output_message(parts: list[Part], reason: str) -> Message:
    return {"role": "assistant", "parts": parts, "finish_reason": reason}


def _instructions(text: str) -> str:
    return _encode([{"type": "text", "content": shortened(text, MAX_BYTES // 2)}]).decode()


# --- bounds ----------------------------------------------------------------------------------


def shortened(text: str, limit: int = MAX_TEXT) -> str:
    """The beginning and the end of a text that is too long, with the number of omitted characters.

    Secrets are removed first, because half a secret would not be recognised any more.
    """
    if len(text) * 4 <= limit:
        return text
    if len(text.encode(errors="replace")) <= limit:
        return text
    text = scrub(text)
    encoded = text.encode(errors="replace")
    if len(encoded) <= limit:
        return text
    room = limit - _MARK
    head = encoded[: room * 3 // 4].decode(errors="ignore")
    tail = encoded[-(room // 4) :].decode(errors="ignore")
    left_out = len(text) - len(head) - len(tail)
    return f"{head} …[{left_out:,} characters left out]… {tail}"


def _messages(items: Sequence[Raw], most: int = MAX_BYTES) -> str:
    """The newest messages that fit. Earlier ones are not even decoded: a conversation may be long,
    and each of its turns repeats it.
    """
    kept: list[bytes] = []
    room = most - _MARK
    for number, raw in enumerate(reversed(items)):
        encoded = _encoded(raw)
        if len(encoded) > room and not kept:
            encoded = _encode(_with_parts_that_fit(message_of(raw), room))
        if len(encoded) > room:
            mark = {"type": "left_out", "messages": len(items) - number}
            kept.append(_encode({"role": "left_out", "parts": [mark]}))
            break
        kept.append(encoded)
        room -= len(encoded) + 1
    return _joined(reversed(kept))


def _encoded(raw: Raw) -> bytes:
    """One item as a message. Each turn repeats earlier items, so most are in the cache."""
    if memoryview(raw).nbytes > _REMEMBERED:
        return _encode(_short_strings(message_of(raw)))
    return _encoded_before(bytes(raw))


@functools.lru_cache(maxsize=1024)
def _encoded_before(data: bytes) -> bytes:
    return _encode(_short_strings(message_of(Raw(data))))


def _one(message: Message) -> str:
    return _joined(iter([_encode(_with_parts_that_fit(message, MAX_BYTES - _MARK))]))


def _joined(encoded: Iterator[bytes]) -> str:
    return (b"[" + b",".join(encoded) + b"]").decode()


def _with_parts_that_fit(message: Message, room: int) -> Message:
    """The first parts of a message that fit, and the number of omitted parts."""
    if len(_encode(message)) <= room:
        return message
    short: Message = _short_strings(message)
    if len(_encode(short)) <= room:
        return short
    kept: list[Part] = []
    used = len(_encode({**short, "parts": []})) + _MARK
    for part in short["parts"]:
        used += len(_encode(part)) + 1
        if used > room:
            break
        kept.append(part)
    missing = message["parts"][len(kept) :]
    mark = {"type": "left_out", "parts": len(missing), "bytes": len(_encode(missing))}
    return {**short, "parts": [*kept, mark]}


def _short_strings(value: Any) -> Any:
    match value:
        case str():
            return shortened(value)
        case list():
            return [_short_strings(it) for it in value]
        case dict():
            return {key: _short_strings(it) for key, it in value.items()}
        case _:
            return value


def _value(value: Any) -> str:
    """A value as text: a string as it is, everything else as JSON."""
    if isinstance(value, str):
        return shortened(value, MAX_BYTES)
    encoded = _encode(value)
    if len(encoded) <= MAX_BYTES:
        return encoded.decode()
    encoded = _encode(_short_strings(value))
    if len(encoded) <= MAX_BYTES:
        return encoded.decode()
    return _encode(shortened(encoded.decode(), MAX_TEXT)).decode()
