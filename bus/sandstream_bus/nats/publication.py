"""Conditions of a publish, and the server's answers."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from sandstream_bus.errors import (
    BusError,
    BusUnavailable,
    InvalidSubject,
    StoreFull,
    WrongSequence,
)

_WRONG_SEQUENCE = {10071, 10164}
_LAST_SEQUENCE = re.compile(r"wrong last sequence: (\d+)")
_STORE_FULL = {10002, 10047, 10023, 10077, 10122}
_IN_PROCESS = 10158
"""A cluster has not yet decided on an earlier publish of this message: retry to find out."""


class Expect(NamedTuple):
    """A compare-and-set: the last sequence of ``subject`` must be ``sequence``."""

    sequence: int
    subject: str


class ApiError(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class PubAck(msgspec.Struct):
    """The server's acknowledgement that a message is stored."""

    seq: int = 0
    stream: str = ""
    duplicate: bool = False
    error: ApiError | None = None


_PUBLISHED = re.compile(r"(?:[^\s.*>]+\.)*[^\s.*>]+")


def check_published(subject: str) -> None:
    """Raise unless a stream can store messages with this subject.

    The server does not answer a publish with an empty token, so it would be repeated forever.
    """
    if _PUBLISHED.fullmatch(subject) is None:
        raise InvalidSubject(
            f"{subject[:200]!r} is not a subject to publish to: it has an empty token, a wildcard "
            "or white space"
        )


decode_ack = msgspec.json.Decoder(PubAck).decode


def header_bytes(headers: dict[str, str] | None) -> int:
    """The size of headers on the wire, which counts toward the payload limit."""
    if not headers:
        return 0
    return 14 + sum(4 + len(key.encode()) + len(value.encode()) for key, value in headers.items())


def publish_error(error: ApiError, subject: str) -> BusError:
    text = f"{error.description} (JetStream error {error.err_code}) on {subject}"
    if error.err_code in _WRONG_SEQUENCE:
        # the server gives the actual sequence only in the text
        match = _LAST_SEQUENCE.search(error.description)
        return WrongSequence(text, last=int(match.group(1)) if match else None)
    if error.err_code in _STORE_FULL or "no space" in error.description:
        return StoreFull(
            f"JetStream cannot store the message: {text}. Free disk space or raise the limit."
        )
    if error.code == 503 or error.err_code == _IN_PROCESS:
        return BusUnavailable(text)
    return BusError(text)
