"""The requests that the server received: a record for each, in memory and optionally in a file.

Owns the `Request` record, the journal file and waiting for the n-th request. The file has one JSON
line per request, appended with one write before the answer is sent. So it survives `kill -9` of the
server and of the client, and other processes may read it while it grows. Credentials are kept out
of the file. Knows nothing of steps or of HTTP.
"""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any, Literal

import msgspec

from sandstream.testing.request_reader import input_text

Api = Literal["responses", "chat", "other"]

_SECRET_HEADERS = frozenset({"authorization", "api-key", "cookie", "x-api-key"})


class Request(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One request as received, and the step that answered it."""

    number: int
    """Position in the journal, from 0."""
    api: Api
    """The API that was called; ``other`` for an unknown path."""
    path: str
    """The path of the URL."""
    at: float
    """`time.monotonic()` of the arrival; comparable between processes of one Linux machine."""
    headers: dict[str, str] = {}
    """The HTTP headers, with names in lower case. The journal file has no credentials."""
    body: dict[str, Any] = {}
    """The decoded JSON body; empty if it is not a JSON object or the journal keeps no bodies."""
    conversation: str | None = None
    """The name of the conversation script that answered; ``None`` for the ordered list."""
    position: int | None = None
    """How many answers the conversation already had."""
    step: str | None = None
    """The name of the step that answered, or its index; ``None`` if there was none."""
    status: int = 200
    """The HTTP status of the answer."""
    problem: str | None = None
    """Why the request was refused: an invalid request (400) or an unexpected one (404, 500)."""
    unexpected: bool = False
    """True if the script had no answer for this request."""
    answered: bool = False
    """True once the whole answer was written to the socket; False if the client disconnected."""

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def text(self) -> str:
        """All text of the request: instructions, messages, calls, outputs."""
        return input_text(self.body)


class Journal:
    """All requests of one server. Safe to read and to wait on from any thread and any loop."""

    def __init__(self, path: str | os.PathLike[str] | None = None, *, bodies: bool = True) -> None:
        self.requests: list[Request] = []
        self._bodies = bodies
        self._lock = threading.Lock()
        self._waiters: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._file = -1
        if path is not None:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, request: Request, raw_body: bytes) -> None:
        """Record a request; `raw_body` is its body as received, copied to the file unchanged."""
        if self._file >= 0:
            os.write(self._file, self._line(request, raw_body))
        if not self._bodies:
            request.body = {}
        with self._lock:
            self.requests.append(request)
            if not self._waiters:
                return
            count = len(self.requests)
            ready = [waiter for waiter in self._waiters if waiter[0] <= count]
            self._waiters = [waiter for waiter in self._waiters if waiter[0] > count]
        for _, loop, event in ready:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    async def wait_for(self, count: int, timeout_s: float) -> None:
        """Return as soon as `count` requests were received; raise TimeoutError otherwise."""
        event = asyncio.Event()
        waiter = (count, asyncio.get_running_loop(), event)
        with self._lock:
            if len(self.requests) >= count:
                return
            self._waiters.append(waiter)
        try:
            await asyncio.wait_for(event.wait(), timeout_s)
        except TimeoutError:
            came = len(self.requests)
            raise TimeoutError(f"{came} of {count} model requests in {timeout_s} s") from None
        finally:
            with self._lock:
                self._waiters = [other for other in self._waiters if other is not waiter]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _line(self, request: Request, raw_body: bytes) -> bytes:
        record = msgspec.structs.asdict(request)
        record["headers"] = {
            name: "redacted" if name in _SECRET_HEADERS else value
            for name, value in request.headers.items()
        }
        if not self._bodies:
            del record["body"]
        elif request.body and b"\n" not in raw_body and b"\r" not in raw_body:
            record["body"] = msgspec.Raw(raw_body)  # already on one line: no need to encode it
        return msgspec.json.encode(record) + b"\n"


def read_journal(path: str | os.PathLike[str]) -> list[Request]:
    """The requests in a journal file; a half-written last line (of a killed server) is skipped.

    Args:
        path: The file that ``ScriptedModel(journal_path=...)`` writes. It need not exist yet.
    """
    file = Path(path)
    if not file.exists():
        return []
    data = file.read_bytes()
    complete = data[: data.rfind(b"\n") + 1]
    return msgspec.json.Decoder(Request).decode_lines(complete)
