"""Small pieces that events and their sinks are made with."""

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
    """Output as text of at most so many characters, and an ellipsis if some are missing."""
    text = output.decode("utf-8", errors="replace")
    return text if len(text) <= max_chars else text[:max_chars] + "…"


def stream_length(stream: io.IOBase) -> int | None:
    """How many bytes are left to read; None for a stream that cannot tell without being read."""
    try:
        position = stream.tell()
        end = stream.seek(0, io.SEEK_END)
        stream.seek(position)
    except (OSError, ValueError, AttributeError):  # not seekable, or closed
        return None
    return end - position


def endpoint_data(endpoint: ExposedPortEndpoint) -> dict[str, object]:
    """What events say about an endpoint. Public host names may carry secrets: they stay out."""
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
    """Add a line to a file that other processes may add to as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        if sys.platform != "win32":
            # Not every file system has locks; there the append itself has to do.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
        file.write(line.encode())
        # Closing writes the line, then gives the lock back.
