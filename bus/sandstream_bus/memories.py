"""Memory scopes: the state of each, replaced under compare-and-set, and the files it names.

A named scope is kept until somebody removes it. That of a workspace is kept as long as the log is:
its workspace does not live longer.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from sandstream_bus.codec import Codec, decode
from sandstream_bus.connection import Connection
from sandstream_bus.direct import Stored, direct_get_last, direct_get_last_each
from sandstream_bus.errors import UndecodableMessage, WrongSequence
from sandstream_bus.headers import TTL
from sandstream_bus.memory_messages import (
    FileRef,
    MemoryEvent,
    MemoryState,
    MemoryStateObject,
    Tree,
)
from sandstream_bus.memory_specs import is_workspace_scope
from sandstream_bus.objects import Objects
from sandstream_bus.publishing import Expect
from sandstream_bus.subjects import scope_token
from sandstream_bus.topology import Topology

INLINE_LIMIT_BYTES = 256 * 1024
EMPTY_TTL_S = 3600
"""A state of which nothing is known but that somebody asked for it does not stay."""
_DAY_S = 86_400
_state = msgspec.json.Decoder[MemoryState | MemoryStateObject](MemoryState | MemoryStateObject)
_tree = msgspec.json.Decoder(Tree)
_encode = msgspec.json.Encoder(order="sorted").encode


class StoredMemory(NamedTuple):
    state: MemoryState
    sequence: int
    """Where its state is in the stream; 0: there is none yet."""
    digest: str = ""
    """The object that holds it, if it is too big for a message."""


Decide = Callable[[MemoryState], Awaitable[MemoryState | None]]
"""The next state of a scope; None: nothing is to be changed. Asked again if somebody was faster."""


class Memories:
    """All memory scopes of one installation."""

    def __init__(
        self, connection: Connection, codec: Codec, topology: Topology, objects: Objects
    ) -> None:
        self._connection = connection
        self._codec = codec
        self._topology = topology
        self._subjects = topology.subjects
        self._objects = objects
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def close(self) -> None:
        await self._objects.close()

    # --- states --------------------------------------------------------------------------------

    async def read(self, scope: str) -> StoredMemory:
        """What is known of the scope; an empty state if nothing is."""
        subject = self._subjects.memory_state(scope)
        stored = await direct_get_last(self._connection, self._topology.memory, subject)
        if stored is None:
            return StoredMemory(MemoryState(scope=scope), 0)
        return await self._decoded(stored)

    async def _decoded(self, stored: Stored) -> StoredMemory:
        found = decode(_state, stored.data)
        digest = ""
        if isinstance(found, MemoryStateObject):
            digest = found.digest
            owner = self._subjects.parse_memory(stored.subject)
            objects = self._objects.owned_by(owner, ttl_s=None)
            found = decode(_state, await objects.get(digest))
        if not isinstance(found, MemoryState):
            raise UndecodableMessage("the state of a memory stands for another one")
        return StoredMemory(found, stored.sequence, digest)

    async def change(self, scope: str, decide: Decide) -> MemoryState:
        """Replace the state by what ``decide`` makes of it; the state as it is then.

        Of several that try at the same time in one process, one after the other does; of several
        processes, one succeeds and the others decide again.
        """
        async with self._locks.setdefault(scope, asyncio.Lock()):
            while True:
                stored = await self.read(scope)
                new = await decide(stored.state)
                if new is None:
                    return stored.state
                try:
                    await self._write(new, after=stored.sequence)
                except WrongSequence:
                    continue
                if stored.digest:
                    await self.forget(scope, [stored.digest])
                return new

    async def _write(self, state: MemoryState, *, after: int) -> None:
        subject = self._subjects.memory_state(state.scope)
        data = _encode(state)
        if len(data) > INLINE_LIMIT_BYTES:
            digest = await self.objects(state.scope).put(data)
            data = _encode(MemoryStateObject(digest=digest, size_bytes=len(data)))
        msg_id = f"{subject}:{uuid.uuid4().hex}"
        ttl_s = self._ttl_s(state.scope)
        if ttl_s is None and not _is_worth_keeping(state):
            ttl_s = EMPTY_TTL_S
        try:
            await self._connection.publish(
                subject,
                data,
                msg_id=msg_id,
                headers={TTL: f"{ttl_s}s"} if ttl_s is not None else None,
                expect=Expect(after, subject),
                budget_s=None,
            )
        except WrongSequence:
            last = await direct_get_last(self._connection, self._topology.memory, subject)
            if last is None or last.msg_id != msg_id:
                raise  # else our own, whose acknowledgement was lost

    async def scopes(self) -> list[str]:
        """All scopes that have a state, by name."""
        found = await direct_get_last_each(
            self._connection, self._topology.memory, [self._subjects.memory_states()]
        )
        return sorted([(await self._decoded(each)).state.scope for each in found])

    async def delete(self, scope: str) -> None:
        """Remove the scope and all of its files."""
        stored = await self.read(scope)
        state = stored.state
        digests = {ref.digest for ref in state.tree.values()} | ({stored.digest} - {""})
        for revision in state.history:
            for tree in (revision.before, revision.after):
                digests |= {ref.digest for ref in (await self.get_tree(scope, tree)).values()}
                digests |= {tree} - {""}
        subject = self._subjects.memory_state(scope)
        await self._connection.request(
            f"$JS.API.STREAM.PURGE.{self._topology.memory}",
            msgspec.json.encode({"filter": subject}),
        )
        await self.forget(scope, digests)

    # --- files ---------------------------------------------------------------------------------

    def objects(self, scope: str) -> Objects:
        """The scope's own objects: what one scope removes, no other misses."""
        return self._objects.owned_by(scope_token(scope), ttl_s=self._ttl_s(scope))

    async def put(self, scope: str, data: bytes) -> FileRef:
        return FileRef(digest=await self.objects(scope).put(data), size=len(data))

    async def get(self, scope: str, ref: FileRef) -> bytes:
        return await self.objects(scope).get(ref.digest)

    async def put_tree(self, scope: str, tree: Tree) -> str:
        """Keep a tree for later; its digest. One that is empty has none."""
        return await self.objects(scope).put(_encode(tree)) if tree else ""

    async def get_tree(self, scope: str, digest: str) -> Tree:
        return decode(_tree, await self.objects(scope).get(digest)) if digest else {}

    async def forget(self, scope: str, digests: Iterable[str]) -> None:
        """Remove objects that nothing refers to any more."""
        objects = self.objects(scope)
        for digest in sorted(digests):
            await objects.delete(digest)

    def _ttl_s(self, scope: str) -> int | None:
        if not is_workspace_scope(scope):
            return None
        return int(self._topology.retention.max_age_days * _DAY_S)

    # --- messages ------------------------------------------------------------------------------

    async def send(
        self,
        subject: str,
        message: MemoryEvent,
        *,
        msg_id: str,
        headers: dict[str, str] | None = None,
    ) -> int:
        """Publish what is to be done, or was done, once per ``msg_id``; its sequence."""
        ack = await self._connection.publish(
            subject,
            await self._codec.encode(message),
            msg_id=msg_id,
            headers=headers,
            budget_s=None,
        )
        return ack.seq


def _is_worth_keeping(state: MemoryState) -> bool:
    return bool(state.tree or state.rollouts or state.history or state.forgotten)
