"""Read answers of the Responses API, complete or as a stream of events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from sandstream_actors.model.failures import malformed, stream_error
from sandstream_actors.model.interface import NO_JSON, ModelAnswer, ModelCallError, Usage, given
from sandstream_actors.model.transport import Received

OnEvent = Callable[[bytes], None]

# Events that show nothing yet, so that the call may still be repeated.
PRELUDE = frozenset({"response.created", "response.in_progress", "response.queued"})


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    input_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


class _Response(msgspec.Struct):
    output: list[msgspec.Raw] | None = None
    id: str | None = None
    model: str | None = None
    status: str | None = None
    usage: msgspec.Raw = NO_JSON
    error: Any = None
    incomplete_details: Any = None


class _Event(msgspec.Struct):
    type: str | None = None
    response: msgspec.Raw = NO_JSON
    item: msgspec.Raw = NO_JSON
    error: Any = None
    code: Any = None
    message: Any = None


_decode_response = msgspec.json.Decoder(_Response).decode
_decode_usage = msgspec.json.Decoder(_Usage).decode
_decode_event = msgspec.json.Decoder(_Event).decode


def read_answer(received: Received, *, keep_usage: bool) -> ModelAnswer:
    """The answer of a call that was not streamed."""
    return _answer(_response(received.content, received), received, (), keep_usage=keep_usage)


class ResponsesStream:
    """Reads one stream to its end; `seen` and `committed` say what the caller was shown."""

    def __init__(self, received: Received, on_event: OnEvent | None, *, keep_usage: bool) -> None:
        self.seen = 0
        self.committed = False
        self._received = received
        self._on_event = on_event
        self._keep_usage = keep_usage
        self._items: list[msgspec.Raw] = []
        self._last: _Response | None = None

    async def read(self) -> ModelAnswer:
        await self._received.events(self._take)
        if self._last is None:
            raise ended_early(self._received)
        return _answer(self._last, self._received, self._items, keep_usage=self._keep_usage)

    def _take(self, data: bytes) -> bool:
        if data == b"[DONE]":
            return True
        try:
            event = _decode_event(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise malformed(f"a stream event: {error}", *_at(self._received)) from error
        # Errors are not passed on: the call may be repeated, and the exception says everything.
        if event.error is not None:
            raise stream_error(event.error, *_at(self._received))
        if event.type in ("error", "response.error"):
            found = {"code": event.code, "message": event.message}
            raise stream_error(found, *_at(self._received))
        self._pass_on(data, event.type)
        match event.type:
            case "response.output_item.done" if given(event.item):
                self._items.append(event.item)
            case "response.completed" | "response.failed" | "response.incomplete":
                response = _response(bytes(event.response), self._received)
                status = event.type.removeprefix("response.")
                self._last = msgspec.structs.replace(response, status=status)
        return self._last is not None

    def _pass_on(self, data: bytes, kind: str | None) -> None:
        self.committed = self.committed or kind not in PRELUDE
        if self._on_event is not None:
            self.seen += 1
            self._on_event(data)


def ended_early(received: Received) -> ModelCallError:
    return ModelCallError(
        "unavailable",
        f"{received.where} ended the stream before the answer was complete.",
        code="stream_ended",
        request_id=received.request_id,
        retryable=True,
    )


def _response(content: bytes, received: Received) -> _Response:
    try:
        return _decode_response(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed(str(error), *_at(received)) from error


def _answer(
    response: _Response,
    received: Received,
    streamed: list[msgspec.Raw] | tuple[msgspec.Raw, ...],
    *,
    keep_usage: bool,
) -> ModelAnswer:
    if response.status in ("failed", "incomplete"):
        raise _unfinished(response, received)
    if response.output is None and response.error is not None:
        raise stream_error(response.error, *_at(received))
    # Some endpoints send the items only as events and leave the completed response empty.
    output = response.output or list(streamed)
    if response.output is None and not output:
        raise malformed("the response has no `output`", *_at(received))
    if any(bytes(item)[:1] != b"{" for item in output):
        raise malformed("an output item is not an object", *_at(received))
    return ModelAnswer(
        output=[item.copy() for item in output],
        usage=_usage(response.usage, received),
        response_id=response.id,
        request_id=received.request_id,
        model=response.model,
        raw_usage=response.usage.copy() if keep_usage and given(response.usage) else NO_JSON,
    )


def _usage(raw: msgspec.Raw, received: Received) -> Usage:
    if not given(raw):
        return Usage(requests=1)
    try:
        usage = _decode_usage(raw)
    except msgspec.DecodeError as error:
        raise malformed(f"the usage: {error}", *_at(received)) from error
    inward = usage.input_tokens_details or _Details()
    outward = usage.output_tokens_details or _Details()
    return Usage(
        requests=1,
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        total_tokens=usage.total_tokens or 0,
        cached_tokens=inward.cached_tokens or 0,
        cache_write_tokens=inward.cache_write_tokens or 0,
        reasoning_tokens=outward.reasoning_tokens or 0,
    )


def _unfinished(response: _Response, received: Received) -> ModelCallError:
    details = response.incomplete_details if response.status == "incomplete" else response.error
    fields = details if isinstance(details, dict) else {}
    code = fields.get("code") or fields.get("reason")
    message = f"The response from {received.where} ended with status {response.status!r}"
    said = "; ".join(str(part) for part in (code, fields.get("message")) if part)
    return ModelCallError(
        "behavior",
        f"{message}: {said[:500]}" if said else f"{message}.",
        code=code if isinstance(code, str) else None,
        request_id=received.request_id,
        body=details,
    )


def _at(received: Received) -> tuple[str, str | None]:
    return received.where, received.request_id
