"""Content-addressed objects in a JetStream object bucket, readable with any object-store client.

Own chunking (512 KiB, several in flight) on a connection of its own, because big publishes slow
small ones down and nats-py's ``get`` copies quadratically. The name of an object is its SHA-256, so
a put is idempotent and a get is verified. Objects age out with the log that refers to them.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import uuid
from collections.abc import Awaitable, Callable

import msgspec

from sandstream_bus.connection import Connection
from sandstream_bus.direct import direct_get_last, direct_get_many
from sandstream_bus.errors import ObjectMissing, UndecodableMessage

CHUNK_BYTES = 512 * 1024
_IN_FLIGHT = 8


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

    def __init__(self, bucket: str, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._bucket = bucket
        self._stream = f"OBJ_{bucket}"
        self._connect = connect
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()

    async def put(self, data: bytes) -> str:
        """Store ``data`` unless it is there; return its digest."""
        digest = hashlib.sha256(data).hexdigest()
        connection = await self._open()
        if await self._meta(connection, digest) is not None:
            return digest
        while (nuid := await self._put_chunks(connection, data)) is None:
            pass
        meta = _Meta(
            name=digest,
            bucket=self._bucket,
            nuid=nuid,
            size=len(data),
            chunks=-(-len(data) // CHUNK_BYTES),
            digest="SHA-256=" + base64.urlsafe_b64encode(bytes.fromhex(digest)).decode(),
        )
        await connection.publish(
            self._meta_subject(digest),
            msgspec.json.encode(meta),
            msg_id=f"{nuid}:meta",
            headers={"Nats-Rollup": "sub"},
        )
        return digest

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
                    )
                    for offset in range(window, end, CHUNK_BYTES)
                )
            )
            sequences.extend(ack.seq for ack in acks)
        return nuid if sequences == sorted(sequences) else None

    async def get(self, digest: str) -> bytes:
        """The object's bytes, verified."""
        connection = await self._open()
        meta = await self._meta(connection, digest)
        if meta is None:
            raise ObjectMissing(
                f"object {digest} is not in bucket {self._bucket}: it has aged out or was deleted"
            )
        chunks = await direct_get_many(
            connection, self._stream, f"$O.{self._bucket}.C.{meta.nuid}", after=0
        )
        data = b"".join(chunk.data for chunk in chunks)
        if hashlib.sha256(data).hexdigest() != digest:
            raise UndecodableMessage(f"object {digest} is damaged: its bytes do not fit its digest")
        return data

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _open(self) -> Connection:
        async with self._lock:
            if self._connection is None:
                self._connection = await self._connect()
            return self._connection

    async def _meta(self, connection: Connection, digest: str) -> _Meta | None:
        found = await direct_get_last(connection, self._stream, self._meta_subject(digest))
        return None if found is None else _decode_meta(found.data)

    def _meta_subject(self, name: str) -> str:
        return f"$O.{self._bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"
