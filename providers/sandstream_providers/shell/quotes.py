"""Putting foreign text into scripts.

Scripts are pure ASCII and short, because some channels pass them as one argument of a program.
Long values and lists go into the data of a script instead, where it is quoted as
bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from sandstream_providers.box.agent import wire


def quoted(raw: bytes) -> bytes:
    """One word for a shell. Must not hold a zero byte."""
    return b"'" + raw.replace(b"'", b"'\\''") + b"'"


def words(raw: Iterable[bytes]) -> bytes:
    return b" ".join(quoted(one) for one in raw)


def assigned(name: str, value: str | bytes | int) -> str:
    """A line that gives a variable this value, which may have any bytes."""
    raw = wire.to_bytes(str(value)) if isinstance(value, str | int) else value
    if all(byte == 0x0A or 0x20 <= byte < 0x7F for byte in raw):
        return f"{name}={quoted(raw).decode('ascii')}\n"
    escaped = "".join(_escape(byte) for byte in raw)
    # A command substitution drops line ends at its end, hence the mark behind the value.
    return f"{name}=$(printf '%b_' '{escaped}'); {name}=${{{name}%_}}\n"


def _escape(byte: int) -> str:
    plain = chr(byte)
    return plain if (byte < 0x7F and plain.isalnum()) or plain in "/._-" else f"\\0{byte:03o}"


def assigned_all(**values: str | bytes | int) -> str:
    return "".join(assigned(name, value) for name, value in values.items())
