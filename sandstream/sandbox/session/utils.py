"""Helpers for events and their sinks."""

from __future__ import annotations

import contextlib
import io
import ipaddress
import sys
from pathlib import Path

from sandstream.sandbox.session.events import event_to_json_line as event_to_json_line
from sandstream.sandbox.types import ExposedPortEndpoint

if sys.platform != "win32":
    import fcntl


def shortened_text(output: bytes, max_chars: int) -> str:
    """Output as text of at most ``max_chars`` characters, with an ellipsis if it was cut."""
    text = output.decode("utf-8", errors="replace")
    return text if len(text) <= max_chars else text[:max_chars] + "…"


def stream_length(stream: io.IOBase) -> int | None:
    """The number of bytes left to read; None if the stream is not seekable."""
    try:
        position = stream.tell()
        end = stream.seek(0, io.SEEK_END)
        stream.seek(position)
    except (OSError, ValueError, AttributeError):  # not seekable, or closed
        return None
    return end - position


def endpoint_data(endpoint: ExposedPortEndpoint) -> dict[str, object]:
    """An endpoint's data for events. Public host names are left out: they may contain secrets."""
    data: dict[str, object] = {"server.port": endpoint.port}
    if _is_loopback(endpoint.host.strip().lower()):
        data["server.address"] = endpoint.host
    return data


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def append_line(path: Path, line: str) -> None:
    """Append a line to a file that other processes may also append to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        if sys.platform != "win32":
            # Not every file system has locks; there a plain append must do.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
        file.write(line.encode())
        # Closing writes the line, then releases the lock.
