"""Frames on the socket, the same in both directions: two lengths, a JSON header, raw bytes.

A request is ``{"id", "do", ...}``, an answer ``{"id", "ok": ...}`` or ``{"id", "error": ...}``, and
what comes before an answer is ``{"id", "event", ...}``. JSON of the standard library, because it
passes on surrogate escapes, and names of files may hold them.
"""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any


LENGTHS = struct.Struct(">II")
MAX_HEADER = 64 * 1024 * 1024
MAX_PAYLOAD = 1024 * 1024 * 1024

_encode = json.JSONEncoder(separators=(",", ":")).encode


class BadFrame(Exception):
    """What came is not of this protocol."""


def encode(header: dict[str, Any], payload_length: int) -> bytes:
    """Everything of a frame but its payload."""
    text = _encode(header).encode("ascii")
    return LENGTHS.pack(len(text), payload_length) + text


def lengths(prefix: bytes) -> tuple[int, int]:
    header, payload = LENGTHS.unpack(prefix)
    if not 2 <= header <= MAX_HEADER or payload > MAX_PAYLOAD:
        raise BadFrame(f"a frame with lengths {header} and {payload}")
    return header, payload


def decode(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except ValueError as error:
        raise BadFrame("a header that is not JSON") from error
    if not isinstance(header, dict):
        raise BadFrame("a header that is not an object")
    return header


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def to_text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
