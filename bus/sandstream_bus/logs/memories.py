"""Memory scopes: their states, replaced with compare-and-set, and the files they refer to.

A named scope is kept until it is removed. The scope of a workspace is kept as long as the log,
because its workspace does not live longer.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from sandstream_bus.errors import (
    ContentMissing,
    ObjectMissing,
    UndecodableMessage,
    WrongSequence,
)
from sandstream_bus.logs.codec import Codec, decode
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.direct import Stored
from sandstream_bus.nats.fresh import fresh_last, fresh_last_each
from sandstream_bus.nats.objects import Objects, name_in
from sandstream_bus.nats.publication import Expect
from sandstream_bus.nats.topology import Topology
from sandstream_bus.wire.headers import TTL
from sandstream_bus.wire.memories import (
    FileRef,
    MemoryEvent,
    MemoryState,
    MemoryStateObject,
    Tree,
)
from sandstream_bus.wire.memory_specs import is_workspace_scope
from sandstream_bus.wire.subjects import scope_token, session_of

INLINE_LIMIT_BYTES = 256 * 1024
EMPTY_TTL_S = 3600
"""The time to live of a state that contains nothing worth keeping."""
_DAY_S = 86_400
_state = msgspec.json.Decoder[MemoryState | MemoryStateObject](MemoryState | MemoryStateObject)
_tree = msgspec.json.Decoder(Tree)
_encode = msgspec.json.Encoder(order="sorted").encode


class StoredMemory(NamedTuple):
    state: MemoryState
    sequence: int
    """The sequence of the state in the stream; 0: there is none yet."""
    digest: str = ""
    """The object that contains the state, if it is too big for a message."""


Decide = Callable[[MemoryState], Awaitable[MemoryState | None]]
"""The next state of a scope; None: no change. Called again after a conflict."""
DecideStored = Callable[[StoredMemory], Awaitable[MemoryState | None]]


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
        """The state of the scope; an empty state if there is none."""
        subject = self._subjects.memory_state(scope)
        seen = 0
        while True:
            stored = await fresh_last(self._connection, self._topology.memory, subject)
            if stored is None:
                return StoredMemory(MemoryState(scope=scope), 0)
            try:
                return await self._decoded(stored)
            except ObjectMissing:
                if stored.sequence == seen:
                    raise
                seen = stored.sequence  # it may have been replaced meanwhile

    async def _decoded(self, stored: Stored) -> StoredMemory:
        found = decode(_state, stored.data)
        digest = ""
        if isinstance(found, MemoryStateObject):
            digest = found.digest
            owner = self._subjects.parse_memory(stored.subject)
            objects = self._objects.owned_by(owner, ttl_s=None)
            try:
                found = decode(_state, await objects.get(digest))
            except ObjectMissing as error:
                text = f"the state of the memory {session_of(owner)!r} cannot be read: {error}"
                raise ContentMissing(text) from error
        if not isinstance(found, MemoryState):
            raise UndecodableMessage("the state of a memory stands for another one")
        return StoredMemory(found, stored.sequence, digest)

    async def change(self, scope: str, decide: Decide) -> MemoryState:
        """Replace the state by the result of ``decide``; return the new state.

        Concurrent changes in one process run one after the other; of several processes one succeeds
        and the others decide again.
        """

        async def of_state(stored: StoredMemory) -> MemoryState | None:
            return await decide(stored.state)

        return await self.change_stored(scope, of_state)

    async def change_stored(self, scope: str, decide: DecideStored) -> MemoryState:
        """Like :meth:`change`, but ``decide`` also gets the position of the state."""
        async with self._locks.setdefault(scope, asyncio.Lock()):
            while True:
                stored = await self.read(scope)
                new = await decide(stored)
                if new is None:
                    return stored.state
                try:
                    await self._write(new, after=stored.sequence)
                except WrongSequence:
                    continue
                await self.forget(scope, filter(None, [stored.digest]))
                return new

    async def _write(self, state: MemoryState, *, after: int) -> None:
        subject = self._subjects.memory_state(state.scope)
        data = _encode(state)
        digest = ""
        if len(data) > INLINE_LIMIT_BYTES:
            data = _encode(msgspec.structs.replace(state, written=uuid.uuid4().hex))
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
            last = await fresh_last(self._connection, self._topology.memory, subject)
            if last is None or last.msg_id != msg_id:
                await self.forget(state.scope, filter(None, [digest]))
                raise
            # else it is our own write, whose acknowledgement was lost

    async def scopes(self) -> list[str]:
        """All scopes that have a state, by name."""
        subjects = await self._topology.subjects_of(
            self._connection, self._topology.memory, self._subjects.memory_states()
        )
        found = await fresh_last_each(self._connection, self._topology.memory, subjects)
        return sorted([it for it in [await self._name(each) for each in found] if it])

    async def _name(self, stored: Stored) -> str:
        try:
            return (await self._decoded(stored)).state.scope
        except ObjectMissing:  # replaced meanwhile, or removed
            token = self._subjects.parse_memory(stored.subject)
            again = await self.read(session_of(token))
            return again.state.scope if again.sequence else ""

    async def delete(self, scope: str) -> None:
        """Remove the scope and all of its files."""

        async def decide(state: MemoryState) -> MemoryState:
            return MemoryState(scope=state.scope, outdated=await self.all_of(scope))

        state = await self.change(scope, decide)
        await self.discard(scope, state.outdated)
        await self.remove_blank(scope)

    async def remove_blank(self, scope: str) -> None:
        """Remove an empty state, unless it was replaced since."""
        stored = await self.read(scope)
        if not stored.sequence or not is_blank(stored.state) or stored.state.unfinished:
            return
        subject = self._subjects.memory_state(scope)
        purge = {"filter": subject, "seq": stored.sequence + 1}
        await self._connection.request(
            f"$JS.API.STREAM.PURGE.{self._topology.memory}", msgspec.json.encode(purge)
        )
        await self.forget(scope, filter(None, [stored.digest]))

    # --- files ---------------------------------------------------------------------------------

    def objects(self, scope: str) -> Objects:
        """The scope's own objects: removing them does not affect other scopes."""
        return self._objects.owned_by(scope_token(scope), ttl_s=self._ttl_s(scope))

    async def put(self, scope: str, data: bytes) -> FileRef:
        return FileRef(digest=await self.objects(scope).put(data), size=len(data))

    async def get(self, scope: str, ref: FileRef) -> bytes:
        return await self.objects(scope).get(ref.digest)

    async def put_tree(self, scope: str, tree: Tree) -> str:
        """Store a tree; return its digest, which is empty for an empty tree."""
        return await self.objects(scope).put(_encode(tree)) if tree else ""

    async def get_tree(self, scope: str, digest: str) -> Tree:
        return decode(_tree, await self.objects(scope).get(digest)) if digest else {}

    async def forget(self, scope: str, digests: Iterable[str]) -> None:
        """Remove objects that nothing else can refer to."""
        objects = self.objects(scope)
        for digest in sorted(digests):
            await objects.delete(digest)

    async def discard(self, scope: str, outdated: Mapping[str, int]) -> None:
        """Remove objects that nothing refers to any more, unless they were stored again since."""
        await self.objects(scope).discard(outdated)

    async def stored(self) -> dict[str, set[str]]:
        """The digests of all objects by scope; a scope whose name is too long for a subject is
        listed by its token.
        """
        bucket = self._topology.memory_bucket
        subjects = await self._topology.subjects_of(
            self._connection, f"OBJ_{bucket}", f"$O.{bucket}.M.>"
        )
        found: dict[str, set[str]] = {}
        for subject in subjects:
            token, _, digest = name_in(subject).rpartition(".")
            found.setdefault(session_of(token), set()).add(digest)
        return found

    async def sweep_chunks(self, *, older_than_s: float) -> None:
        """Remove chunks that no record refers to: their writer or remover has died."""
        bucket = self._topology.memory_bucket
        subjects = await self._topology.subjects_of(
            self._connection, f"OBJ_{bucket}", f"$O.{bucket}.C.>"
        )
        await self._objects.sweep_chunks(subjects, older_than_s=older_than_s)

    async def all_of(self, scope: str) -> dict[str, int]:
        """All objects of a scope, including unreferenced ones, with their sequences."""
        own = (await self.stored()).get(session_of(scope_token(scope)), set())
        return await self.objects(scope).places(own)

    def _ttl_s(self, scope: str) -> int | None:
        days = self._topology.retention.max_age_days
        if not is_workspace_scope(scope) or days <= 0:
            return None
        return int(days * _DAY_S)

    # --- messages ------------------------------------------------------------------------------

    async def send(
        self,
        subject: str,
        message: MemoryEvent,
        *,
        msg_id: str,
        headers: dict[str, str] | None = None,
    ) -> int:
        """Publish a memory event, once per ``msg_id``; return its sequence."""
        ack = await self._connection.publish(
            subject,
            await self._codec.encode(message),
            msg_id=msg_id,
            headers=headers,
            budget_s=None,
        )
        return ack.seq


def is_blank(state: MemoryState) -> bool:
    """Is the state of the scope empty, apart from objects to clean up?"""
    cleared = msgspec.structs.replace(state, outdated={}, unfinished=None, written="")
    return cleared == MemoryState(scope=state.scope)


def _is_worth_keeping(state: MemoryState) -> bool:
    is_known = state.tree or state.rollouts or state.history or state.forgotten
    return bool(is_known or state.outdated or state.unfinished)
