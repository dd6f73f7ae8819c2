"""The specification of a sandbox, as data from which any node can create it repeatedly."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from sandstream_bus.wire.spec_base import Spec


class PlanFile(Spec, frozen=True, kw_only=True):
    """A file, directory or link of a manifest, small enough to travel in the message."""

    path: str
    """Relative to the root."""
    kind: Literal["file", "dir", "link"] = "file"
    data: bytes = b""
    mode: int | None = None
    target: str = ""
    ephemeral: bool = False


class PlanTree(Spec, frozen=True, kw_only=True):
    """A snapshot in the object store that is restored below ``path``."""

    path: str = ""
    tree: str
    """The digest of the snapshot."""
    ephemeral: bool = False


class PlanRepo(Spec, frozen=True, kw_only=True):
    """A git repository that the sandbox actor fetches."""

    path: str
    url: str
    ref: str
    subpath: str = ""
    ephemeral: bool = False


class WorkspacePlan(Spec, frozen=True, kw_only=True):
    """A manifest with everything of the caller's machine already in the object store."""

    files: list[PlanFile] = []
    trees: list[PlanTree] = []
    repos: list[PlanRepo] = []
    exclude: list[str] = []
    """Relative paths that no snapshot holds: ephemeral entries, mounts, skipped paths."""
    groups: dict[str, str] = {}
    """Relative paths whose group is not the sandbox's own, with its name."""


class EnvironmentValue(Spec, frozen=True, kw_only=True):
    """A value, or the name of a secret that only the actor can resolve."""

    value: str | None = None
    secret: str | None = None
    """The name of a variable in the sandbox actor's own environment."""

    def __repr__(self) -> str:
        """Without the value, because logs and tracebacks show it to people."""
        return f"EnvironmentValue(secret={self.secret!r})" if self.secret else "EnvironmentValue(…)"


class GrantSpec(Spec, frozen=True, kw_only=True):
    path: str
    host_path: str = ""
    read_only: bool = False
    inside: bool = False
    """It is a path of the sandbox itself: nothing of the host is shown."""


class LimitSpec(Spec, frozen=True, kw_only=True):
    """None: no limit. An omitted field has the provider's default."""

    cpus: float | msgspec.UnsetType | None = msgspec.UNSET
    memory_mb: int | msgspec.UnsetType | None = msgspec.UNSET
    processes: int | msgspec.UnsetType | None = msgspec.UNSET
    disk_mb: int | msgspec.UnsetType | None = msgspec.UNSET
    file_mb: int | msgspec.UnsetType | None = msgspec.UNSET
    wall_s: float | msgspec.UnsetType | None = msgspec.UNSET


class MemoryMount(Spec, frozen=True, kw_only=True):
    """Where the files of a memory are in a workspace."""

    scope: str
    memories_dir: str = "memories"
    sessions_dir: str = "sessions"
    writable: bool = True
    """Changes there are kept."""


DEFAULT_PROVIDER = "local"
"""The provider of sandboxes that name none. Part of the wire: stored specs omit it."""


class SandboxSpec(Spec, frozen=True, kw_only=True):
    """All that is needed to make the sandbox, on any node, any number of times."""

    provider: str = DEFAULT_PROVIDER
    node: str = ""
    """Only this node may create it; empty: any node of the provider."""
    root: str = "/workspace"
    plan: WorkspacePlan = WorkspacePlan()
    base: str = ""
    """The snapshot to start from, instead of the plan's lasting entries."""
    environment: dict[str, EnvironmentValue] = {}
    ports: list[int] = []
    network: Literal["none", "host"] = "none"
    limits: LimitSpec = LimitSpec()
    grants: list[GrantSpec] = []
    options: dict[str, Any] = {}
    run: str = ""
    """The run that owns it, if any: it is cleaned up with that run."""
    agent: str = ""
    idle_s: float | None = None
    """Pause after this time without an operation; None: never."""
    memories: list[MemoryMount] = []
    """Memories whose files are written to it whenever it is opened."""
    renew: bool = False
    """If it was deleted, create it again: its run failed and is retried."""
    keep_paused: bool = False
    """When it is closed, pause its box and keep it: a later session continues in it."""
    session: str = ""
    """The session (``session.<id>.state``) whose workspace it is: it is cleaned up with it."""


CheckpointPolicy = Literal["end", "turn", "never"]


class SandboxUse(Spec, frozen=True, kw_only=True):
    """How an agent of a run gets its sandbox."""

    spec: SandboxSpec = SandboxSpec()
    id: str = ""
    """A sandbox that exists; empty: one of the run's own, made on the agent's first turn. The
    workspace of a session (``spec.session``) is made if it does not exist yet."""
    owned: bool = True
    """The run creates and closes it; otherwise it belongs to a session."""
    checkpoint: CheckpointPolicy = "end"
    cwd: str = ""
    """Relative to the root."""
    user: str = ""
    """The sandbox's user for the model's tools."""
    keep: bool = False
    """Leave it running at the end of the run."""
