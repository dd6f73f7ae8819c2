"""The files that a workspace began with, as the start of its first run states them in the log."""

from __future__ import annotations

import hashlib
import posixpath
from typing import NamedTuple

from sandstream_bus.wire.messages import RunStarted
from sandstream_bus.wire.sandboxes import WorkspacePlan, real_path
from sandstream_providers.interface import Entry
from sandstream_workspaces.store import Difference, WorkspaceStore

from sandstream.client import Client


class StartingFiles:
    """The lasting files of a manifest. What it fetches from repositories is not known here.

    Args:
        store: The checkpoints.
        plan: The manifest.
    """

    def __init__(self, store: WorkspaceStore, plan: WorkspacePlan) -> None:
        self._store = store
        self._plan = plan
        self._known: dict[str, _Given] = {}

    @property
    def has_repositories(self) -> bool:
        """Whether files came from repositories."""
        return bool(self._plan.repos)

    async def difference(self, after: str) -> Difference:
        """What a checkpoint has changed in them. Directories are left out.

        Args:
            after: The checkpoint.
        """
        given = self._known = await self._given()
        now = {it.path: it for it in await self._store.entries(after) if it.kind != "dir"}
        both = now.keys() & given.keys()
        return Difference(
            added=sorted(now.keys() - given.keys()),
            changed=sorted(it for it in both if _shape(now[it]) != _shape(given[it].entry)),
            removed=sorted(given.keys() - now.keys()),
        )

    async def content(self, path: str) -> bytes:
        """The content of a file that the last difference names.

        Args:
            path: Its path.
        """
        it = self._known[path]
        if not it.tree:
            return it.data
        return b"".join([piece async for piece in self._store.read_file(it.tree, it.path)])

    def entry(self, path: str) -> Entry:
        """A file that the last difference names.

        Args:
            path: Its path.
        """
        return self._known[path].entry

    async def _given(self) -> dict[str, _Given]:
        """In the order in which the sandbox actor writes them: later ones replace earlier ones."""
        found: dict[str, _Given] = {}
        for part in (it for it in self._plan.trees if not it.ephemeral):
            for entry in await self._store.entries(part.tree):
                path = posixpath.join(real_path(part.path), entry.path)
                found[path] = _Given(entry, tree=part.tree, path=entry.path)
        for file in (it for it in self._plan.files if not it.ephemeral):
            digest = hashlib.sha256(file.data).hexdigest() if file.kind == "file" else ""
            entry = Entry(
                path=real_path(file.path),
                kind=file.kind,
                mode=0o644 if file.mode is None else file.mode,
                size=len(file.data),
                digest=digest,
                target=file.target,
            )
            found[entry.path] = _Given(entry, data=file.data)
        left_out = [real_path(it) for it in self._plan.exclude]
        return {
            path: it
            for path, it in found.items()
            if it.entry.kind != "dir"
            and not any(path == out or path.startswith(f"{out}/") for out in left_out)
        }


class _Given(NamedTuple):
    entry: Entry
    data: bytes = b""
    tree: str = ""
    """The checkpoint that has its content; empty: it is ``data``."""
    path: str = ""
    """Its path in that checkpoint."""


def _shape(entry: Entry) -> tuple[str, int, str, str]:
    mode = 0 if entry.kind == "link" else entry.mode
    return (entry.kind, mode, entry.digest, entry.target)


async def start_of(client: Client, run: str) -> str | StartingFiles | None:
    """What a workspace had when it was made for a run: a checkpoint, or the files of the manifest;
    None: the log no longer says.

    Args:
        client: The connection.
        run: The first run in the workspace.
    """
    for it in await client.events(run):
        if isinstance(it.event, RunStarted):
            agent = it.event.graph.agents.get(it.event.graph.start)
            if agent is not None and agent.sandbox is not None:
                spec = agent.sandbox.spec
                return spec.base or StartingFiles(WorkspaceStore(client.bus), spec.plan)
    return None
