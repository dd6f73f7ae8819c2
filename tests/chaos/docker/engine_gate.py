"""A socket between an actor and its engine. It passes everything on, and can be told to do harm
right before the engine gets a certain call, or right after the engine has done it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

CALLS = {
    "probe": r"POST /containers/create\?.*name=sandstream-probe-",  # of an image
    "create": r"POST /containers/create\?.*name=sandstream-(?!probe-)",
    "prepare": r"PUT /containers/[^/]+/archive",
    "start": r"POST /containers/[^/]+/start",
    "pause": r"POST /containers/[^/]+/pause",
    "unpause": r"POST /containers/[^/]+/unpause",
    "exec": r"POST /containers/[^/]+/exec",
    "exec_start": r"POST /exec/[^/]+/start",
    "remove": r"DELETE /containers/",
}
"""What an actor says to an engine, without the version of the protocol."""
_OF_BOXES = ("prepare", "start")
"""A probe is started as well: these count only after a named container was made."""
_REQUEST = re.compile(rb"(?:GET|HEAD|POST|PUT|DELETE) \S+ HTTP/1")
_VERSION = re.compile(r" /v[0-9.]+/")
_CHUNK = 256 * 1024
_FLUSH_S = 1.0

When = Literal["before", "after"]
Harm = Callable[[], Awaitable[bool]]
"""Returns whether the call, or its answer, is to be passed on afterwards."""


class EngineGate:
    """Harms once. The path must be short, as it is the address of a socket."""

    def __init__(self, path: Path, engine: Path, call: str, when: When, harm: Harm) -> None:
        self.url = f"unix://{path}"
        self._path = path
        self._engine = engine
        self._call = call
        self._when = when
        self._harm = harm
        self._is_armed = True
        self._has_named = False
        self._serving: set[asyncio.Task[None]] = set()
        self._harming: set[asyncio.Future[bool]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self._path)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        await asyncio.sleep(0)  # whoever was just let in is served by a task of its own
        for harm in self._harming:
            harm.cancel()
        for writer in self._writers:
            writer.transport.abort()  # so all that serve them end
        await asyncio.gather(*self._serving, *self._harming, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def _is_it(self, data: bytes) -> bool:
        if not self._is_armed or not _REQUEST.match(data):
            return False
        said = _VERSION.sub(" /", data.partition(b"\r\n")[0].decode(errors="replace"), count=1)
        self._has_named |= bool(re.match(CALLS["create"], said))
        if self._call in _OF_BOXES and not self._has_named:
            return False
        return bool(re.match(CALLS[self._call], said))

    async def _serve(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._writers.add(answers)
        try:
            engine, calls = await asyncio.open_unix_connection(str(self._engine))
        except OSError:  # it is down, and whoever called it notices
            await _closed(answers)
            self._serving.discard(task)
            return
        self._writers.add(calls)
        reached = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_calls(client, calls, reached))
                both.create_task(self._pass_answers(engine, answers, reached))
        except* (OSError, _Broken):
            pass  # one of the two has gone
        finally:
            await _closed(calls)
            await _closed(answers)
            self._serving.discard(task)

    async def _harmed(self) -> bool:
        """The connection itself may be what the harm breaks, and must not stop it."""
        doing = asyncio.ensure_future(self._harm())
        self._harming.add(doing)
        return await asyncio.shield(doing)

    async def _pass_calls(
        self, client: asyncio.StreamReader, calls: asyncio.StreamWriter, reached: asyncio.Event
    ) -> None:
        while data := await client.read(_CHUNK):
            if self._is_it(data):
                self._is_armed = False
                if self._when == "after":
                    reached.set()
                elif not await self._harmed():
                    raise _Broken
            calls.write(data)
            await calls.drain()
        calls.write_eof()

    async def _pass_answers(
        self, engine: asyncio.StreamReader, answers: asyncio.StreamWriter, reached: asyncio.Event
    ) -> None:
        while data := await engine.read(_CHUNK):
            if reached.is_set():
                reached.clear()
                if not await self._harmed():
                    raise _Broken
            answers.write(data)
            await answers.drain()
        raise _Broken


async def _closed(writer: asyncio.StreamWriter) -> None:
    """The other side gets what was written, unless it does not read."""
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):  # it was broken before, or stands still
        async with asyncio.timeout(_FLUSH_S):
            await writer.wait_closed()
    writer.transport.abort()


class _Broken(Exception):
    """The connection ends here."""
