"""What a publish can demand and what the server can answer."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from sandstream_bus.errors import BusError, BusUnavailable, StoreFull, WrongSequence

_WRONG_SEQUENCE = {10071, 10164}
_STORE_FULL = {10002, 10047, 10023, 10077, 10122}


class Expect(NamedTuple):
    """A compare-and-set: the last sequence below ``subject`` must be ``sequence``."""

    sequence: int
    subject: str


class ApiError(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class PubAck(msgspec.Struct):
    """The server's promise that a message is stored."""

    seq: int = 0
    stream: str = ""
    duplicate: bool = False
    error: ApiError | None = None


decode_ack = msgspec.json.Decoder(PubAck).decode


def header_bytes(headers: dict[str, str] | None) -> int:
    """The size of headers on the wire, which counts towards the payload."""
    if not headers:
        return 0
    return 14 + sum(4 + len(key.encode()) + len(value.encode()) for key, value in headers.items())


def publish_error(error: ApiError, subject: str) -> BusError:
    text = f"{error.description} (JetStream error {error.err_code}) on {subject}"
    if error.err_code in _WRONG_SEQUENCE:
        return WrongSequence(text)
    if error.err_code in _STORE_FULL or "no space" in error.description:
        return StoreFull(
            f"JetStream cannot store the message: {text}. Free disk space or raise the limit."
        )
    if error.code == 503:
        return BusUnavailable(text)
    return BusError(text)
