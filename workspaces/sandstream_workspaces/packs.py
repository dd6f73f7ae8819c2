"""Write contents into packs, and remember where contents are stored.

Small contents are joined into packs of a few MiB, so that ten thousand files become a few dozen
objects; a big file is spread over several packs. At most ``_IN_FLIGHT`` packs are in memory while
they are sent.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple

from sandstream_bus.nats.objects import Objects

from sandstream_workspaces.format import Part, TreeEntry
from sandstream_workspaces.freshness import Freshness

PACK_BYTES = 4 * 1024 * 1024
"""A pack is sent when it reaches this size."""
PART_BYTES = 8 * 1024 * 1024
"""The longest piece of a file, and the biggest pack."""
_IN_FLIGHT = 3
_REMEMBERED = 200_000


class Locations:
    """The places of contents that this process has stored or seen, least recently used first."""

    def __init__(self) -> None:
        self._parts: OrderedDict[bytes, tuple[Part, ...]] = OrderedDict()

    def get(self, digest: bytes) -> tuple[Part, ...] | None:
        parts = self._parts.get(digest)
        if parts is not None:
            self._parts.move_to_end(digest)
        return parts

    def learn(self, digest: bytes, parts: tuple[Part, ...]) -> None:
        self._parts[digest] = parts
        self._parts.move_to_end(digest)
        if len(self._parts) > _REMEMBERED:
            self._parts.popitem(last=False)

    def learn_entries(self, entries: Iterable[TreeEntry]) -> None:
        for entry in entries:
            if entry.parts:
                self.learn(entry.digest, entry.parts)

    def forget_packs(self, packs: set[bytes]) -> None:
        """Forget contents in packs that are gone, so that they are stored again."""
        gone = [
            digest
            for digest, parts in self._parts.items()
            if any(part.pack in packs for part in parts)
        ]
        for digest in gone:
            del self._parts[digest]


class Placed(NamedTuple):
    """A piece of content in a pack whose digest may not be known yet."""

    number: int
    offset: int
    size: int


class PackWriter:
    """Packs contents and sends the packs. A context manager; call ``parts`` after ``finish``."""

    def __init__(self, objects: Objects, freshness: Freshness, locations: Locations) -> None:
        self._objects = objects
        self._freshness = freshness
        self._locations = locations
        self._open: list[bytes] = []
        self._open_bytes = 0
        self._sending: list[asyncio.Task[bytes]] = []
        self._slots = asyncio.Semaphore(_IN_FLIGHT)
        self._placed: dict[bytes, list[Placed]] = {}
        self._failure: Exception | None = None
        self.new_bytes = 0
        """The bytes that had to be stored."""

    async def __aenter__(self) -> PackWriter:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    def has(self, digest: bytes) -> bool:
        return digest in self._placed or self._locations.get(digest) is not None

    async def add(self, digest: bytes, data: bytes) -> None:
        """Add a whole content, unless it is already stored."""
        if not data or self.has(digest):
            return
        if len(data) <= PART_BYTES:
            self._placed[digest] = [await self.add_part(data)]
            return
        self._placed[digest] = [
            await self.add_part(data[offset : offset + PART_BYTES])
            for offset in range(0, len(data), PART_BYTES)
        ]

    async def add_part(self, data: bytes) -> Placed:
        """Add a piece of at most ``PART_BYTES``; :meth:`place` says which content it belongs to."""
        if self._open_bytes + len(data) > PART_BYTES:
            await self._send()
        placed = Placed(len(self._sending), self._open_bytes, len(data))
        self._open.append(data)
        self._open_bytes += len(data)
        if self._open_bytes >= PACK_BYTES:
            await self._send()
        return placed

    def place(self, digest: bytes, parts: list[Placed]) -> None:
        """Declare that these parts are that content. Content stored earlier stays where it is."""
        if not self.has(digest):
            self._placed[digest] = parts

    async def finish(self) -> None:
        """Wait until all packs are stored."""
        await self._send()
        packs = await asyncio.gather(*self._sending)
        for digest, placed in self._placed.items():
            parts = tuple(Part(packs[it.number], it.offset, it.size) for it in placed)
            self._locations.learn(digest, parts)

    def parts(self, digest: bytes) -> tuple[Part, ...]:
        """Where a content is stored; call after :meth:`finish`."""
        parts = self._locations.get(digest)
        if parts is None:
            raise LookupError(f"the content {digest.hex()} was not stored")
        return parts

    async def _send(self) -> None:
        if not self._open:
            return
        await self._slots.acquire()
        if self._failure is not None:
            raise self._failure
        pieces, self._open, self._open_bytes = self._open, [], 0
        self._sending.append(asyncio.create_task(self._put(pieces)))

    async def _put(self, pieces: list[bytes]) -> bytes:
        try:
            data, digest = await asyncio.to_thread(_join, pieces)
            pieces.clear()
            stored = await self._objects.put_new(data, digest)
            self._freshness.stored(digest)
            self.new_bytes += len(data) if stored else 0
            return bytes.fromhex(digest)
        except Exception as error:
            self._failure = error  # makes the next send fail
            raise
        finally:
            self._slots.release()


def _join(pieces: list[bytes]) -> tuple[bytes, str]:
    data = b"".join(pieces)
    return data, hashlib.sha256(data).hexdigest()
