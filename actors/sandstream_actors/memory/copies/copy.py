"""One memory in one workspace: writes its files to the workspace and reports changes.

A sync compares three versions: the memory as it was last written here (named by the marker), the
files in the workspace now, and the current memory. Changes of both sides are merged; changes of the
workspace are reported as an edit of the current revision. Generated files are written first, in
parts; then the handbook, its summary and the marker in one change, the marker last. So a reader
sees whole files, and a crash leaves a copy that is at least as new as its marker says.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import ObjectMissing, UndecodableMessage
from sandstream_bus.wire.memories import EditRequested, FileEdit, FileRef, MemoryState, Tree
from sandstream_bus.wire.memory_specs import is_workspace_scope
from sandstream_bus.wire.sandboxes import MemoryMount, MemorySynced
from sandstream_memory.layout import (
    KNOWN_FOLDERS,
    MARKER_FILE,
    RAW_MEMORIES,
    SESSIONS,
    SKILLS,
    SUMMARIES,
    Files,
    is_editable,
    is_valid_path,
)
from sandstream_memory.three_way_merge import merge_files
from sandstream_providers.interface import Box, NoSpace

from sandstream_actors.memory.copies.decisions import (
    ABSENT,
    ALWAYS_THERE,
    Decision,
    decide,
    digest_in,
    digest_of,
    in_place_of_folders,
)
from sandstream_actors.memory.copies.files import Folder, Found, MemoryTrouble, said_of
from sandstream_actors.memory.copies.forks import is_parent, pull
from sandstream_actors.memory.copies.marker import Laid
from sandstream_actors.memory.copies.taken import NOTHING_TAKEN, Taken, taken_over
from sandstream_actors.memory.copies.trees import batches, editable, with_versions
from sandstream_actors.run.sandbox_record import SandboxRecord

MOST_SANDBOXES = 100
"""How many workspaces with a copy a memory remembers."""
_FOLDERS = (RAW_MEMORIES, SUMMARIES, SKILLS, SESSIONS)
_NOTHING = FileRef(digest="", size=0)
_GETS_AT_ONCE = 16
_LOOKS = 3
_TRIES = 5
_LOOK_AGAIN_S = 0.3

Purpose = Literal["open", "refresh", "close", "discard"]
"""``close``: only report changes made in the workspace; ``discard``: the same, and write nothing.
"""


class Origin(NamedTuple):
    """The version from which the files in the workspace were changed."""

    base: Tree
    told: dict[str, str]
    keeps: bool
    """Changes count; else the memory replaces them."""
    is_known: bool = True
    """If false, only files that the memory does not have are taken over: changes in the others
    cannot be identified, and would be added again with each new workspace.
    """
    parent: str = ""
    """Another memory that may have the contents of ``base``."""


class MemoryCopy:
    """For one sync."""

    def __init__(
        self,
        bus: Bus,
        record: SandboxRecord,
        box: Box,
        mount: MemoryMount,
        say: Callable[[str], None],
    ) -> None:
        """``say``: reports a problem to people."""
        self._bus = bus
        self._memories = bus.memories
        self._record = record
        self._mount = mount
        self._scope = mount.scope
        self._folder = Folder(box, mount)
        self._say = say
        self._getting = asyncio.Semaphore(_GETS_AT_ONCE)

    async def sync(
        self, purpose: Purpose, *, is_new: bool, first: bool, was_there: bool = False
    ) -> MemorySynced:
        """Sync once. ``is_new``: the box was just created, and no command has run in it. ``first``:
        files without a marker belong to the workspace and were not made by an agent. ``was_there``:
        an earlier sync has written the memory's directories.
        """
        for _ in range(_TRIES):
            synced = await self._try(purpose, is_new=is_new, first=first, was_there=was_there)
            if synced is not None:
                return synced
        raise MemoryTrouble("its files are changed all the time")

    async def _try(
        self, purpose: Purpose, *, is_new: bool, first: bool, was_there: bool
    ) -> MemorySynced | None:
        """Sync; None if a file changed meanwhile that would have been overwritten."""
        state = await self._state(purpose)
        known = state.tree.keys() - in_place_of_folders(state.tree, _FOLDERS)
        found = await self._folder.survey(known, was_there=was_there)
        odd = said_of(found.odd)
        if odd:
            self._say(f"not taken over, move it elsewhere: {odd}")
        state, origin = await self._origin(state, found, first=first)
        taken = await self._taken(state, found)
        origin = origin._replace(base=with_versions(origin.base, taken.versions))
        decisions = decide(
            {path: digest_of(data) for path, data in found.texts.items()},
            base=origin.base,
            head=state.tree,
            told=origin.told,
            is_taken=taken.is_any,
            settled=taken.settled,
            unreadable=found.odd,
            writable=origin.keeps,
            may_delete=not is_new,
        )
        if not self._mount.writable and not origin.keeps:
            self._name_what_is_not_kept(origin, state, found, may_delete=not is_new)
        if not origin.is_known:
            theirs = [path for path in decisions if state.tree.get(path, _NOTHING).size]
            replaced = [path for path in theirs if decisions[path] == "edit"]
            if replaced and not first:
                self._say(
                    f"changes are not kept, because {MARKER_FILE} is missing or damaged, so they "
                    f"cannot be identified; make them again: {', '.join(replaced[:5])}"
                )
            decisions |= dict.fromkeys(theirs, "head")
        merged = await self._merged(decisions, origin, state, found)
        misplaced = self._misplaced(decisions, state, found, merged)
        if misplaced:
            kept = {path: ref for path, ref in state.tree.items() if path not in misplaced}
            state = msgspec.structs.replace(state, tree=kept)
        edits = {path: data for path, data in merged.items() if decisions[path] == "edit"}
        messages = found.marker.messages if found.marker is not None else {}
        messages = {path: it for path, it in messages.items() if path in merged}
        if edits:
            messages |= dict.fromkeys(edits, await self._tell(state, edits))
        synced = MemorySynced(synced=True, revision=state.revision, edits=len(edits))
        is_done = purpose == "close" and not edits and origin.keeps and not found.barriers
        if purpose == "discard" or is_done:
            return synced
        told = {path: ABSENT if it is None else digest_of(it) for path, it in merged.items()}
        marker = Laid(
            scope=self._scope,
            revision=state.revision,
            files=state.tree,
            told=told,
            messages=messages,
        )
        if purpose == "close":
            marker = msgspec.structs.replace(marker, files=editable(marker.files))
            if found.marker is not None and found.marker.scope == self._scope:
                generated = {p: it for p, it in found.marker.files.items() if not is_editable(p)}
                marker = msgspec.structs.replace(marker, files=marker.files | generated)
        is_written = await self._write(
            purpose, state, found, decisions, merged, marker, found.among(misplaced)
        )
        return synced if is_written else None

    async def _state(self, purpose: Purpose) -> MemoryState:
        stored = await self._memories.read(self._scope)
        state = stored.state
        parent = state.parent
        if purpose == "open" and parent is not None and not parent.is_settled:
            state = await pull(self._bus, self._scope, parent.scope, may_settle=True)
        sandbox = self._record.sandbox
        # the workspace of a run is gone before the memory changes
        is_lasting = not self._record.spec.run
        if stored.sequence and is_lasting and sandbox not in state.sandboxes:
            state = await self._memories.change(self._scope, self._with_sandbox)
        return state

    async def _with_sandbox(self, state: MemoryState) -> MemoryState | None:
        """Add this workspace to the memory, so that later changes are written to it."""
        sandbox = self._record.sandbox
        if sandbox in state.sandboxes:
            return None
        known = [*state.sandboxes, sandbox][-MOST_SANDBOXES:]
        return msgspec.structs.replace(state, sandboxes=known)

    async def _origin(
        self, state: MemoryState, found: Found, *, first: bool
    ) -> tuple[MemoryState, Origin]:
        marker = found.marker
        if marker is None:
            return state, Origin({}, {}, first or self._mount.writable, is_known=False)
        files = {path: ref for path, ref in marker.files.items() if is_valid_path(path)}
        replaced = Origin(files, {}, keeps=False)
        if marker.scope == self._scope:
            state = await self._not_older_than(marker.revision, state)
            if marker.revision > state.revision:  # the memory was removed since
                return state, replaced
            return state, Origin(files, marker.told, self._mount.writable)
        if not (is_workspace_scope(self._scope) and is_workspace_scope(marker.scope)):
            return state, replaced
        origin = Origin(files, marker.told, self._mount.writable, parent=marker.scope)
        if state.parent is not None and state.parent.scope == marker.scope:
            return state, origin
        if state.revision:
            return state, replaced
        if await is_parent(self._bus.sandboxes, self._record, marker.scope):
            state = await pull(self._bus, self._scope, marker.scope, may_settle=False)
            return state, origin
        if first:
            return state, Origin({}, {}, keeps=True, is_known=False)  # it is all that is left
        return state, replaced

    async def _taken(self, state: MemoryState, found: Found) -> Taken:
        if found.marker is None:
            return NOTHING_TAKEN
        ours = {self._record.sandbox, self._record.spec.run} - {""}
        return await taken_over(self._memories, state, found.marker, ours)

    async def _not_older_than(self, revision: int, state: MemoryState) -> MemoryState:
        """Read until the state has this revision: a server of a cluster may lag behind."""
        for _ in range(_LOOKS):
            if state.revision >= revision:
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
            state = (await self._memories.read(self._scope)).state
        return state

    # --- changes in the workspace -----------------------------------------------------------------

    async def _merged(
        self, decisions: dict[str, Decision], origin: Origin, state: MemoryState, found: Found
    ) -> dict[str, bytes | None]:
        """The changed files, merged with changes of the memory meanwhile; None: deleted."""
        edited = [path for path, it in decisions.items() if it != "head"]
        if not edited:
            return {}
        base = await self._contents({p: origin.base[p] for p in edited if p in origin.base}, origin)
        lost = [path for path in edited if path in origin.base and path not in base]
        if lost:
            self._say(
                "changes cannot be kept, because the version that they were made in is not known "
                f"any more; make them again: {', '.join(lost[:5])}"
            )
            decisions.update(dict.fromkeys(lost, "head"))
            edited = [path for path in edited if path not in lost]
        head = await self._contents({p: state.tree[p] for p in edited if p in state.tree}, origin)
        local = {path: found.texts[path] for path in edited if path in found.texts}
        together = await asyncio.to_thread(merge_files, base, local, head)
        merged: dict[str, bytes | None] = {}
        for path in edited:
            data = together.get(path)
            digest = ABSENT if data is None else digest_of(data)
            if digest == digest_in(state.tree, path):
                decisions[path] = "head"  # the memory has it already
            else:
                merged[path] = data
        return merged

    def _name_what_is_not_kept(
        self, origin: Origin, state: MemoryState, found: Found, *, may_delete: bool
    ) -> None:
        """Report changes that are not kept. A person may have made them: changes through a session
        look like those of the agent.
        """
        changed = decide(
            {path: digest_of(data) for path, data in found.texts.items()},
            base=origin.base,
            head=state.tree,
            told={},
            unreadable=found.odd,
            writable=True,
            may_delete=may_delete and found.marker is not None,
        )
        paths = sorted(path for path, decision in changed.items() if decision == "edit")
        if paths:
            more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
            self._say(
                "changes in the workspace are not kept, because no agent there may change this "
                f"memory: {', '.join(paths[:5])}{more}"
            )

    def _misplaced(
        self,
        decisions: dict[str, Decision],
        state: MemoryState,
        found: Found,
        merged: dict[str, bytes | None],
    ) -> set[str]:
        """Files in the place of directories that other files, or every memory, need. They are
        neither reported nor written.
        """
        paths = {path for path in state.tree if path not in merged}
        paths |= {path for path, data in merged.items() if data is not None}
        paths |= found.sizes.keys() & KNOWN_FOLDERS
        misplaced = in_place_of_folders(paths, _FOLDERS)
        if misplaced:
            names = ", ".join(sorted(misplaced)[:5])
            self._say(f"files are left out where directories belong: {names}")
        for path in misplaced:
            decisions.pop(path, None)
            merged.pop(path, None)
        return misplaced

    async def _contents(self, tree: Tree, origin: Origin) -> Files:
        """The contents of the files that can be read."""
        found: Files = {}
        for path, ref in tree.items():
            for scope in filter(None, (self._scope, origin.parent)):
                data = await self._get(ref, scope)
                if data is not None:
                    found[path] = data
                    break
        return found

    async def _get(self, ref: FileRef, scope: str) -> bytes | None:
        async with self._getting:
            try:
                return await self._memories.get(scope, ref)
            except (ObjectMissing, UndecodableMessage):  # gone, or damaged
                return None

    async def _tell(self, state: MemoryState, merged: dict[str, bytes | None]) -> int:
        edits = [FileEdit(path=path, data=data) for path, data in sorted(merged.items())]
        request = EditRequested(
            sandbox=self._record.sandbox,
            base=state.revision,
            edits=edits,
            run=self._record.spec.run,
        )
        subject = self._bus.subjects.memory_edit(self._scope)
        content = hashlib.sha256(msgspec.json.encode(request)).hexdigest()
        return await self._memories.send(subject, request, msg_id=f"{subject}:{content}")

    # --- laying out ----------------------------------------------------------------------------

    async def _write(
        self,
        purpose: Purpose,
        state: MemoryState,
        found: Found,
        decisions: dict[str, Decision],
        merged: dict[str, bytes | None],
        marker: Laid,
        misplaced: set[str],
    ) -> bool:
        files: Files = {}
        removed = set(misplaced)
        wanted: Tree = {}
        for path, decision in decisions.items():
            now = found.texts.get(path)
            if decision != "head":
                data = merged[path]
                if data is None:
                    removed |= {path} & found.texts.keys()
                elif data != now:
                    files[path] = data
            elif path in state.tree:
                if now is None or digest_of(now) != state.tree[path].digest:
                    wanted[path] = state.tree[path]
            elif path in ALWAYS_THERE:
                if now != b"":
                    files[path] = b""
            elif now is not None and found.marker is not None:
                removed.add(path)  # without a marker it does not belong to us
        generated: Tree = {}
        if purpose != "close":
            generated = self._outdated(state, found)
            removed |= self._superfluous(state, found)
        if (
            not (files or removed or wanted or generated or found.barriers)
            and marker == found.marker
        ):
            return True
        crashpoint("sandbox.before_memory")
        missing: set[str] = set()
        new: list[str] = []
        try:
            for batch in batches(generated):
                data_of = await self._fetched(batch, missing)
                if data_of:
                    await self._folder.write(data_of, (), found)
                    new += data_of.keys() - found.sizes.keys()
        except NoSpace:  # an incomplete one would only use space
            await self._folder.write({}, new, found)
            raise
        files |= await self._fetched(wanted, missing)
        laid = {path: ref for path, ref in marker.files.items() if path not in missing}
        files[MARKER_FILE] = msgspec.structs.replace(marker, files=laid).encode()
        removed = found.among(removed)  # otherwise it blocked a batch
        if await self._folder.differs(found, [*files, *removed]):
            return False
        is_ours = found.marker is not None and found.marker.scope == self._scope
        folders = () if is_ours and not misplaced else _FOLDERS
        await self._folder.write(files, removed, found, folders=folders)
        crashpoint("sandbox.after_memory")
        if missing:
            names = ", ".join(sorted(missing)[:5])
            self._say(f"files of the memory are lost; undo its last change: {names}")
        return True

    def _outdated(self, state: MemoryState, found: Found) -> Tree:
        """Generated files that are not in the workspace as they are in the memory."""
        marker = found.marker
        laid = marker.files if marker is not None and marker.scope == self._scope else {}
        return {
            path: ref
            for path, ref in state.tree.items()
            if not is_editable(path)
            and is_valid_path(path)
            and not (laid.get(path) == ref and found.sizes.get(path) == ref.size)
        }

    def _superfluous(self, state: MemoryState, found: Found) -> set[str]:
        """Generated files that were written here and are no longer in the memory."""
        laid = found.marker.files if found.marker is not None else {}
        kept = {*state.tree, MARKER_FILE}
        return {it for it in laid if not is_editable(it) and it in found.sizes and it not in kept}

    async def _fetched(self, tree: Tree, missing: set[str]) -> Files:
        contents = await asyncio.gather(*(self._get(ref, self._scope) for ref in tree.values()))
        files: Files = {}
        for path, data in zip(tree, contents, strict=True):
            if data is None:
                missing.add(path)
            else:
                files[path] = data
        return files
