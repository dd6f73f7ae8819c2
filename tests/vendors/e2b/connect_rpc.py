"""The Connect protocol with JSON, as a server speaks it: one message, or a stream of frames.

A frame is a flag byte, the length in four bytes and the JSON. The last frame of a stream has the
flag 2 and carries the error, if there is one; the HTTP status of a stream is always 200.
"""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import StreamReader, web
from vendors.e2b import shapes
from vendors.exchange import Exchange
from vendors.server import Vendor

STREAM_TYPE = "application/connect+json"
UNARY_TYPE = "application/json"
_HEAD_BYTES = 5
_LAST = 2
_COMPRESSED = 1
_STATUS = {
    "canceled": 499,
    "unknown": 500,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "unauthenticated": 401,
}


class RpcError(Exception):
    """An error of a call, with the code that the protocol names."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def to_json(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message}


class WrongType(Exception):
    """The content type is not one of this protocol: status 415."""


def is_stream(request: web.Request) -> bool:
    return request.content_type.startswith("application/connect+")


def error_response(request: web.Request, error: RpcError) -> web.Response:
    """An error instead of an answer, in the form that the request's content type asks for."""
    if is_stream(request):
        return web.Response(
            body=frame({"error": error.to_json()}, flag=_LAST),
            headers={"Content-Type": STREAM_TYPE},
        )
    return web.json_response(error.to_json(), status=_STATUS[error.code])


def unary_response(message: dict[str, Any]) -> web.Response:
    return web.json_response(message)


def frame(message: dict[str, Any], flag: int = 0) -> bytes:
    content = json.dumps(message, separators=(",", ":")).encode()
    return struct.pack(">BI", flag, len(content)) + content


async def one_message(vendor: Vendor, request: web.Request, shape: shapes.Object) -> dict[str, Any]:
    """The only message of a request. Raises :class:`RpcError` if it is not as declared."""
    _check_headers(vendor, request)
    content = await request.read()
    if is_stream(request):
        head, content = content[:_HEAD_BYTES], content[_HEAD_BYTES:]
        if len(head) < _HEAD_BYTES or _length(head) != len(content):
            vendor.protocol_error(request, "not exactly one frame")
            raise RpcError("invalid_argument", "protocol error: expected one message")
    return checked(vendor, request, _decoded(content), shape)


async def only_content(request: web.Request) -> bytes:
    """The JSON of the only message, for the journal; nothing is checked."""
    return (await request.read())[_HEAD_BYTES if is_stream(request) else 0 :]


async def many_messages(
    vendor: Vendor, request: web.Request, shape: shapes.Object
) -> AsyncIterator[dict[str, Any]]:
    """The messages of a client's stream, as they arrive."""
    _check_headers(vendor, request)
    async for content in Exchange.of(request).incoming(_frames(request.content)):
        yield checked(vendor, request, _decoded(content), shape)


def checked(
    vendor: Vendor, request: web.Request, message: Any, shape: shapes.Object
) -> dict[str, Any]:
    findings = shapes.check(message, shape)
    for name in findings.unknown:
        vendor.protocol_error(request, f"unknown field {name}")
    if findings.wrong:
        vendor.protocol_error(request, "; ".join(findings.wrong))
        raise RpcError("invalid_argument", f"unmarshal message: {'; '.join(findings.wrong)}")
    assert isinstance(message, dict)
    return message


def timeout_s(vendor: Vendor, request: web.Request) -> float | None:
    """The deadline that the client asks for."""
    text = request.headers.get("Connect-Timeout-Ms")
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 10:
        vendor.protocol_error(request, f"Connect-Timeout-Ms: {text!r}")
        raise RpcError("invalid_argument", f"protocol error: invalid timeout {text!r}")
    return int(text) / 1000 or None


class EventStream:
    """A server's stream of messages."""

    def __init__(self, request: web.Request) -> None:
        self.exchange = Exchange.of(request)
        self._request = request
        self._response = web.StreamResponse(headers={"Content-Type": STREAM_TYPE})
        self._outgoing = self.exchange.outgoing(self._response.write)

    async def open(self) -> None:
        await self._response.prepare(self._request)

    async def send(self, message: dict[str, Any]) -> None:
        await self._outgoing.send(frame(message))

    async def end(self, error: RpcError | None = None) -> web.StreamResponse:
        """Send the last frame."""
        last = {} if error is None else {"error": error.to_json()}
        await self._outgoing.send(frame(last, flag=_LAST))
        await self._outgoing.finish()
        await self._response.write_eof()
        return self._response


async def answer_stream(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    """One message and the end: the answer to a client's stream."""
    stream = EventStream(request)
    await stream.open()
    await stream.send(message)
    return await stream.end()


async def _frames(content: StreamReader) -> AsyncIterator[bytes]:
    while True:
        head = await content.read(1)
        if not head:
            return
        head += await content.readexactly(_HEAD_BYTES - 1)
        yield await content.readexactly(_length(head))


def _length(head: bytes) -> int:
    flag, length = struct.unpack(">BI", head)
    if flag & _COMPRESSED:
        raise RpcError("internal", "protocol error: sent compressed message without encoding")
    return int(length)


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content) if content else {}
    except ValueError as error:
        raise RpcError("invalid_argument", f"unmarshal message: {error}") from None


def _check_headers(vendor: Vendor, request: web.Request) -> None:
    if request.headers.get("Connect-Protocol-Version") != "1":
        vendor.protocol_error(request, "the header Connect-Protocol-Version: 1 is missing")
    if request.content_type not in (STREAM_TYPE, UNARY_TYPE):
        vendor.protocol_error(request, f"content type {request.content_type}")
        raise WrongType
