"""Content-addressed objects in a JetStream object bucket, readable with any object-store client.

Own chunking (512 KiB, several in flight) on a connection of its own, because big publishes slow
small ones down and nats-py's ``get`` copies quadratically. The name of an object is its SHA-256, so
a put is idempotent and a get is verified. Objects age out with the log that refers to them.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from sandstream_bus.connection import Connection
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.direct import Stored, direct_get_last, direct_get_last_each, direct_get_many
from sandstream_bus.errors import BusUnavailable, ObjectMissing, UndecodableMessage
from sandstream_bus.headers import TTL

CHUNK_BYTES = 512 * 1024
REFRESH_AFTER_S = 12 * 3600
"""An object older than this is stored anew by a put, or it would age out before the event that now
refers to it: the bucket keeps things only a day longer than the log does.
"""
_IN_FLIGHT = 8
_DIGEST = re.compile(r"[0-9a-f]{64}")


class _Meta(msgspec.Struct, omit_defaults=True):
    """The object store's own record of an object."""

    name: str
    bucket: str
    nuid: str
    size: int
    chunks: int
    digest: str
    mtime: str = "0001-01-01T00:00:00Z"


_decode_meta = msgspec.json.Decoder(_Meta).decode


class Objects:
    """Puts and gets blobs. Opens its connection on first use; the owner closes it."""

    def __init__(
        self,
        bucket: str,
        connect: Callable[[], Awaitable[Connection]],
        *,
        owner: str = "",
        ttl_s: int | None = None,
        refresh_s: float | None = None,
    ) -> None:
        """``owner``: its objects are its own, though others may have the same; ``ttl_s``: they
        expire after so long; ``refresh_s``: a put stores anew what is older; None: than half a day.
        """
        self._bucket = bucket
        self._stream = f"OBJ_{bucket}"
        self._connect = connect
        self._prefix = f"{owner}." if owner else ""
        self._expiry = {TTL: f"{ttl_s}s"} if ttl_s is not None else {}
        self._refresh_s = refresh_s
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()
        self._closed = False

    def owned_by(self, owner: str, *, ttl_s: int | None) -> Objects:
        """The objects of an owner in this bucket, over the same connection. What does not expire
        is stored once.
        """
        refresh_s = float("inf") if ttl_s is None else ttl_s / 2
        return Objects(self._bucket, self._open, owner=owner, ttl_s=ttl_s, refresh_s=refresh_s)

    async def put(self, data: bytes) -> str:
        """Store ``data`` unless it is there and young enough; return its digest."""
        digest = hashlib.sha256(data).hexdigest()
        await self.put_new(data, digest)
        return digest

    async def put_new(self, data: bytes, digest: str) -> bool:
        """Like :meth:`put`, for whoever has the digest already; was there anything to store?"""
        connection = await self._open()
        known = await direct_get_last(connection, self._stream, self._meta_subject(digest))
        refresh_s = REFRESH_AFTER_S if self._refresh_s is None else self._refresh_s
        if known is not None and _age(known.time).total_seconds() < refresh_s:
            return False
        crashpoint("objects.before_chunks")
        while (nuid := await self._put_chunks(connection, data)) is None:
            pass
        meta = _Meta(
            name=self._prefix + digest,
            bucket=self._bucket,
            nuid=nuid,
            size=len(data),
            chunks=-(-len(data) // CHUNK_BYTES),
            digest="SHA-256=" + base64.urlsafe_b64encode(bytes.fromhex(digest)).decode(),
        )
        crashpoint("objects.before_meta")
        await connection.publish(
            self._meta_subject(digest),
            msgspec.json.encode(meta),
            msg_id=f"{nuid}:meta",
            headers={"Nats-Rollup": "sub", **self._expiry},
        )
        crashpoint("objects.after_meta")
        return True

    async def delete(self, digest: str) -> None:
        """Remove it; no error if there is none."""
        connection = await self._open()
        found = await direct_get_last(connection, self._stream, self._meta_subject(digest))
        if found is not None:
            await self._delete(connection, found)

    async def discard(self, places: Mapping[str, int]) -> None:
        """Remove these, but not what was stored anew since the record of an object had its place:
        somebody needs it again.
        """
        if not places:
            return
        connection = await self._open()
        bounds = {self._meta_subject(digest): place for digest, place in places.items()}
        for found in await direct_get_last_each(connection, self._stream, list(bounds)):
            if found.sequence <= bounds[found.subject]:
                await self._delete(connection, found)

    async def places(self, digests: Iterable[str]) -> dict[str, int]:
        """Where the record of each is in the bucket's stream; one that is not there is left out."""
        return {digest: it.sequence for digest, it in (await self._records(digests)).items()}

    async def _delete(self, connection: Connection, record: Stored) -> None:
        """The record goes first: who sees that has all of it, and whoever stores the same meanwhile
        keeps it.
        """
        chunks = f"$O.{self._bucket}.C.{_decode_meta(record.data).nuid}"
        await self._purge(connection, {"filter": record.subject, "seq": record.sequence + 1})
        await self._purge(connection, {"filter": chunks})

    async def _purge(self, connection: Connection, what: dict[str, object]) -> None:
        await connection.request(f"$JS.API.STREAM.PURGE.{self._stream}", msgspec.json.encode(what))

    async def _put_chunks(self, connection: Connection, data: bytes) -> str | None:
        """Write all chunks under a new id; None if a repeated publish changed their order."""
        nuid = uuid.uuid4().hex
        sequences: list[int] = []
        for window in range(0, len(data), CHUNK_BYTES * _IN_FLIGHT):
            end = min(len(data), window + CHUNK_BYTES * _IN_FLIGHT)
            acks = await asyncio.gather(
                *(
                    connection.publish(
                        f"$O.{self._bucket}.C.{nuid}",
                        data[offset : offset + CHUNK_BYTES],
                        msg_id=f"{nuid}:{offset}",
                        headers=self._expiry,
                    )
                    for offset in range(window, end, CHUNK_BYTES)
                )
            )
            sequences.extend(ack.seq for ack in acks)
        return nuid if sequences == sorted(sequences) else None

    async def get(self, digest: str) -> bytes:
        """The object's bytes, verified."""
        if not _DIGEST.fullmatch(digest):
            raise UndecodableMessage(f"{digest[:80]!r} is not the digest of an object")
        connection = await self._open()
        seen = ""
        while True:
            meta = await self._meta(connection, digest)
            if meta is None:
                raise ObjectMissing(
                    f"object {digest} is not in bucket {self._bucket}: it has aged out or was "
                    "deleted"
                )
            if meta.nuid == seen:
                raise UndecodableMessage(
                    f"object {digest} is damaged: its bytes do not fit its digest"
                )
            chunks = await direct_get_many(
                connection, self._stream, f"$O.{self._bucket}.C.{meta.nuid}", after=0
            )
            data = b"".join(chunk.data for chunk in chunks)
            if hashlib.sha256(data).hexdigest() == digest:
                return data
            seen = meta.nuid  # somebody may have removed it, or stored it anew, meanwhile

    async def ages(self, digests: Iterable[str]) -> dict[str, float]:
        """How long ago each was stored, in seconds; one that is not there is left out."""
        found = await self._records(digests)
        return {digest: _age(it.time).total_seconds() for digest, it in found.items()}

    async def _records(self, digests: Iterable[str]) -> dict[str, Stored]:
        names = {self._meta_subject(digest): digest for digest in digests}
        if not names:
            return {}
        connection = await self._open()
        found = await direct_get_last_each(connection, self._stream, list(names))
        return {names[it.subject]: it for it in found}

    async def sweep_chunks(self, subjects: Iterable[str], *, older_than_s: float) -> None:
        """Remove those of these chunks that no record names, if they are not new."""
        connection = await self._open()
        records = await direct_get_many(connection, self._stream, f"$O.{self._bucket}.M.>", after=0)
        named = {_decode_meta(it.data).nuid for it in records}
        for subject in subjects:
            if subject.rpartition(".")[2] in named:
                continue
            last = await direct_get_last(connection, self._stream, subject)
            if last is not None and _age(last.time).total_seconds() >= older_than_s:
                await self._purge(connection, {"filter": subject})

    async def close(self) -> None:
        async with self._lock:  # somebody may be opening it
            self._closed = True
            if self._connection is not None:
                await self._connection.close()
                self._connection = None

    async def _open(self) -> Connection:
        async with self._lock:
            if self._closed:
                raise BusUnavailable("the object store is closed: so is the bus that it belongs to")
            if self._connection is None:
                self._connection = await self._connect()
            return self._connection

    async def _meta(self, connection: Connection, digest: str) -> _Meta | None:
        found = await direct_get_last(connection, self._stream, self._meta_subject(digest))
        return None if found is None else _decode_meta(found.data)

    def _meta_subject(self, digest: str) -> str:
        name = base64.urlsafe_b64encode((self._prefix + digest).encode()).decode()
        return f"$O.{self._bucket}.M.{name}"


def name_in(subject: str) -> str:
    """The name of the object whose record has this subject."""
    return base64.urlsafe_b64decode(subject.rpartition(".")[2]).decode()


def _age(time: str) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(time)
