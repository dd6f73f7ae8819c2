"""One connection to an agent, shared by all requests that are under way."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from sandstream_providers import interface
from sandstream_providers.box.agent import wire

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]
OnEvent = Callable[[dict[str, Any], bytes], None]


HELLO_S = 10.0


class LinkLost(Exception):
    """The connection broke before the answer came."""


class Waiting:
    """A request whose answer has not come yet."""

    __slots__ = ("answer", "on_event")

    def __init__(self, answer: asyncio.Future[tuple[Any, bytes]], on_event: OnEvent | None) -> None:
        self.answer = answer
        self.on_event = on_event


class Link:
    """Made by :func:`open_link`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        silent_s: float | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Waiting] = {}
        self._heard_at = asyncio.get_running_loop().time()
        self._tasks = [asyncio.create_task(self._receive())]
        self.broken = False
        if silent_s is not None:
            self._tasks.append(asyncio.create_task(self._watch(silent_s)))

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._waiting)

    async def ask(
        self, request: dict[str, Any], payload: bytes = b"", on_event: OnEvent | None = None
    ) -> tuple[Any, bytes]:
        """The answer and its raw bytes. Raises LinkLost, or the agent's refusal."""
        if self.broken:
            raise LinkLost
        if len(payload) > wire.MAX_PAYLOAD:
            raise interface.LimitReached(
                f"{len(payload)} bytes at once are too many: write big files in pieces, with append"
            )
        number = next(self._numbers)
        if not self._waiting:
            self._heard_at = asyncio.get_running_loop().time()  # it had nothing to say
        answer: asyncio.Future[tuple[Any, bytes]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = Waiting(answer, on_event)
        try:
            self._send({**request, "id": number}, payload)
            if len(payload) > 65536:
                await self._drain()
            return await answer
        except asyncio.CancelledError:
            if not self.broken:
                self._send({"id": number, "do": "forget", "request": number}, b"")
            raise
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        self._break()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    def _send(self, header: dict[str, Any], payload: bytes) -> None:
        head = wire.encode(header, len(payload))
        if len(payload) > 65536:
            self._writer.write(head)
            self._writer.write(payload)
        else:
            self._writer.write(head + payload)

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except OSError as error:
            raise LinkLost from error

    async def _receive(self) -> None:
        reader = self._reader
        try:
            while True:
                header_length, length = wire.lengths(await reader.readexactly(wire.LENGTHS.size))
                body = await reader.readexactly(header_length + length)
                self._heard_at = asyncio.get_running_loop().time()
                self._take(wire.decode(body[:header_length]), body[header_length:])
        except (asyncio.IncompleteReadError, OSError, wire.BadFrame):
            pass  # _break tells those that wait for an answer
        finally:
            self._break()

    async def _watch(self, silent_s: float) -> None:
        """While answers are awaited, ask a silent agent something that it answers at once. A
        connection through a vendor can be dead without an end.
        """
        loop = asyncio.get_running_loop()
        while not self.broken:
            await asyncio.sleep(silent_s / 2)
            silence = loop.time() - self._heard_at if self._waiting else 0.0
            if silence > 2 * silent_s:
                self._break()
            elif silence > silent_s and not self.broken:
                self._send({"id": next(self._numbers), "do": "sessions"}, b"")

    def _take(self, header: dict[str, Any], payload: bytes) -> None:
        waiting = self._waiting.get(header["id"])
        if waiting is None or waiting.answer.done():
            return  # the request was given up
        if "event" not in header:
            if "error" in header:
                waiting.answer.set_exception(refusal(header["error"]))
            else:
                waiting.answer.set_result((header["ok"], payload))
        elif waiting.on_event is not None:
            try:
                waiting.on_event(header, payload)
            except Exception as error:  # noqa: BLE001 - the caller's own fault goes back to the caller
                waiting.answer.set_exception(error)

    def _break(self) -> None:
        if self.broken:
            return
        self.broken = True
        self._writer.close()
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(LinkLost())


def refusal(error: dict[str, Any]) -> interface.ProviderError:
    """The agent's error as an exception of the interface."""
    kind = getattr(interface, str(error["kind"]), interface.ProviderError)
    if not (isinstance(kind, type) and issubclass(kind, interface.ProviderError)):
        kind = interface.ProviderError
    return kind(str(error["message"]), **error["data"])


async def open_link(connect: Connect, token: str = "", silent_s: float | None = None) -> Link:
    """Connect, and show the token if the agent wants one. ``silent_s``: an agent that leaves a
    question unanswered for so long has lost its connection.

    Raises BoxGone if no agent listens, or NotPermitted if it refuses the token.
    """
    try:
        reader, writer = await connect()
        if token:
            await asyncio.wait_for(_hello(reader, writer, token), HELLO_S)
    except (OSError, EOFError, wire.BadFrame) as error:  # a time-out is an OSError
        raise interface.BoxGone(f"the sandbox's agent does not answer: {error}") from error
    return Link(reader, writer, silent_s)


async def _hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
    try:
        writer.write(wire.encode({"id": 0, "do": "hello", "token": token}, 0))
        size, _ = wire.lengths(await reader.readexactly(wire.LENGTHS.size))
        answer = wire.decode(await reader.readexactly(size))
        if "error" in answer:
            raise refusal(answer["error"])
    except BaseException:
        writer.close()
        raise
