"""Content-addressed objects in a JetStream object bucket, readable with any object-store client.

Uses its own chunking (512 KiB, several in flight) and its own connection, because big publishes
slow small ones down and nats-py's ``get`` copies quadratically. The name of an object is its
SHA-256, so a put is idempotent and a get is verified. Objects expire with the log that refers to
them.
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

from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import BusUnavailable, ObjectMissing, UndecodableMessage
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.direct import Stored
from sandstream_bus.nats.fresh import fresh_last, fresh_last_each, fresh_many
from sandstream_bus.wire.headers import TTL

CHUNK_BYTES = 512 * 1024
REFRESH_AFTER_S = 12 * 3600
"""A put stores an object again if it is older than this; otherwise it would expire before the
event that now refers to it: the bucket keeps objects only a day longer than the log.
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
    """Stores and reads blobs. Opens its connection on first use; the owner closes it."""

    def __init__(
        self,
        bucket: str,
        connect: Callable[[], Awaitable[Connection]],
        *,
        owner: str = "",
        ttl_s: int | None = None,
        refresh_s: float | None = None,
    ) -> None:
        """``owner``: keeps its objects apart from equal ones of others; ``ttl_s``: their time to
        live;
        ``refresh_s``: a put stores an older object again; None: ``REFRESH_AFTER_S``.
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
        """The objects of an owner in this bucket, over the same connection. Without a ``ttl_s``
        they are stored only once.
        """
        refresh_s = float("inf") if ttl_s is None else ttl_s / 2
        return Objects(self._bucket, self._open, owner=owner, ttl_s=ttl_s, refresh_s=refresh_s)

    async def put(self, data: bytes) -> str:
        """Store ``data`` unless it exists and is recent enough; return its digest."""
        digest = hashlib.sha256(data).hexdigest()
        await self.put_new(data, digest)
        return digest

    async def put_new(self, data: bytes, digest: str) -> bool:
        """Like :meth:`put`, with a known digest; returns whether anything was stored."""
        connection = await self._open()
        known = await fresh_last(connection, self._stream, self._meta_subject(digest))
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
        """Delete the object, if it exists."""
        connection = await self._open()
        found = await fresh_last(connection, self._stream, self._meta_subject(digest))
        if found is not None:
            await self._delete(connection, found)

    async def discard(self, places: Mapping[str, int]) -> None:
        """Delete these objects, except those stored again after the given sequence of their record:
        they are in use again.
        """
        if not places:
            return
        connection = await self._open()
        bounds = {self._meta_subject(digest): place for digest, place in places.items()}
        for found in await fresh_last_each(connection, self._stream, list(bounds)):
            if found.sequence <= bounds[found.subject]:
                await self._delete(connection, found)

    async def places(self, digests: Iterable[str]) -> dict[str, int]:
        """The sequence of each object's record in the stream; missing ones are left out."""
        return {digest: it.sequence for digest, it in (await self._records(digests)).items()}

    async def _delete(self, connection: Connection, record: Stored) -> None:
        """Delete the record first: a reader that sees a record has all chunks, and a concurrent put
        of the same data keeps its own.
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
            chunks = await fresh_many(
                connection, self._stream, f"$O.{self._bucket}.C.{meta.nuid}", after=0
            )
            data = b"".join(chunk.data for chunk in chunks)
            if hashlib.sha256(data).hexdigest() == digest:
                return data
            seen = meta.nuid  # it may have been removed or stored again meanwhile

    async def ages(self, digests: Iterable[str]) -> dict[str, float]:
        """The age of each object in seconds; missing ones are left out."""
        found = await self._records(digests)
        return {digest: _age(it.time).total_seconds() for digest, it in found.items()}

    async def _records(self, digests: Iterable[str]) -> dict[str, Stored]:
        names = {self._meta_subject(digest): digest for digest in digests}
        if not names:
            return {}
        connection = await self._open()
        found = await fresh_last_each(connection, self._stream, list(names))
        return {names[it.subject]: it for it in found}

    async def sweep_chunks(self, subjects: Iterable[str], *, older_than_s: float) -> None:
        """Remove those of these chunks that no record refers to, unless they are recent."""
        connection = await self._open()
        records = await fresh_many(connection, self._stream, f"$O.{self._bucket}.M.>", after=0)
        named = {_decode_meta(it.data).nuid for it in records}
        for subject in subjects:
            if subject.rpartition(".")[2] in named:
                continue
            last = await fresh_last(connection, self._stream, subject)
            if last is not None and _age(last.time).total_seconds() >= older_than_s:
                await self._purge(connection, {"filter": subject})

    async def close(self) -> None:
        async with self._lock:  # it may be opening
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
        found = await fresh_last(connection, self._stream, self._meta_subject(digest))
        return None if found is None else _decode_meta(found.data)

    def _meta_subject(self, digest: str) -> str:
        name = base64.urlsafe_b64encode((self._prefix + digest).encode()).decode()
        return f"$O.{self._bucket}.M.{name}"


def name_in(subject: str) -> str:
    """The object name in the subject of its record."""
    return base64.urlsafe_b64decode(subject.rpartition(".")[2]).decode()


def _age(time: str) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(time)
