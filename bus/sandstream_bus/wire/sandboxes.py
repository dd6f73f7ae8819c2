"""The messages about sandboxes: specifications, the log of a sandbox, and operations.

Each sandbox has its own log, ``<p>.sandbox.<sandbox>.state``: intent, ready, checkpoints, end. An
operation of a run is a ``call.requested`` in the run's log. An operation of a session object is a
:class:`SandboxRequest`, answered by one :class:`SandboxReply`. Messages contain only the names of
secrets.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
from msgspec import Raw

from sandstream_bus.wire.sandbox_specs import (
    CheckpointPolicy as CheckpointPolicy,
)
from sandstream_bus.wire.sandbox_specs import (
    EnvironmentValue as EnvironmentValue,
)
from sandstream_bus.wire.sandbox_specs import (
    GrantSpec as GrantSpec,
)
from sandstream_bus.wire.sandbox_specs import (
    LimitSpec as LimitSpec,
)
from sandstream_bus.wire.sandbox_specs import (
    MemoryMount as MemoryMount,
)
from sandstream_bus.wire.sandbox_specs import (
    PlanFile as PlanFile,
)
from sandstream_bus.wire.sandbox_specs import (
    PlanRepo as PlanRepo,
)
from sandstream_bus.wire.sandbox_specs import (
    PlanTree as PlanTree,
)
from sandstream_bus.wire.sandbox_specs import (
    SandboxSpec as SandboxSpec,
)
from sandstream_bus.wire.sandbox_specs import (
    SandboxUse as SandboxUse,
)
from sandstream_bus.wire.sandbox_specs import (
    WorkspacePlan as WorkspacePlan,
)
from sandstream_bus.wire.spec_base import NO_JSON, Spec

_SURROGATE = re.compile("[\udc80-\udcff]")
_ESCAPED = re.compile("\0([0-9a-f]{2})")


def wire_path(path: str) -> str:
    """A path for a message. JSON has no lone surrogates: a byte that is not UTF-8 becomes NUL and
    two hex digits, which cannot occur in a path.
    """
    return _SURROGATE.sub(lambda match: f"\0{ord(match.group()) & 0xFF:02x}", path)


def real_path(path: str) -> str:
    """The inverse of :func:`wire_path`: with surrogate escapes, as Python names such files."""
    return _ESCAPED.sub(lambda match: chr(0xDC00 + int(match.group(1), 16)), path)


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base of the tagged messages here."""


# --- the log of a sandbox -------------------------------------------------------------------------


class SandboxIntended(Message, frozen=True, kw_only=True, tag="sandbox.intended"):
    """Written before anything is created, so that all parts of a box can be found and removed."""

    spec: SandboxSpec
    generation: int
    provider: str
    node: str
    key: str
    """The provider's name of the box, used for this generation only."""


class SandboxReady(Message, frozen=True, kw_only=True, tag="sandbox.ready"):
    generation: int
    node: str
    key: str
    root: str
    restored: str = ""
    """The snapshot from which it was restored."""
    duration_ms: int = 0
    box_id: str = ""
    """The vendor's own id of the box; empty if the box is not at a vendor."""
    run: str | None = None
    """From now on it belongs to this run, or (empty) to a session. None: as before."""


class SandboxCheckpointed(Message, frozen=True, kw_only=True, tag="sandbox.checkpointed"):
    generation: int
    tree: str
    files: int
    size_bytes: int
    new_bytes: int
    """The number of bytes that had to be stored."""
    exclude: list[str] = []
    reason: str = ""
    duration_ms: int = 0


class SandboxStopped(Message, frozen=True, kw_only=True, tag="sandbox.stopped"):
    """Its box is gone; its files are in the last checkpoint."""

    generation: int
    reason: str = ""


class SandboxPaused(Message, frozen=True, kw_only=True, tag="sandbox.paused"):
    """The box is frozen; the next operation wakes it."""

    generation: int
    reason: str = ""
    saved: bool = False
    """The last checkpoint has the workspace as it was frozen, so that a loss can be noticed."""
    kept: bool = False
    """It was closed: it is kept for a later session, and does not belong to any program."""


class SandboxMounted(Message, frozen=True, kw_only=True, tag="sandbox.mounted"):
    """From now on the files of this memory are written to it whenever it is opened."""

    generation: int
    memory: MemoryMount


class SandboxLost(Message, frozen=True, kw_only=True, tag="sandbox.lost"):
    """Its node or box died. ``restorable``: it can continue from a checkpoint."""

    generation: int
    reason: str
    restorable: bool = False


class SandboxDeleted(Message, frozen=True, kw_only=True, tag="sandbox.deleted"):
    generation: int
    reason: str = ""


SandboxEvent = (
    SandboxIntended
    | SandboxReady
    | SandboxCheckpointed
    | SandboxStopped
    | SandboxPaused
    | SandboxMounted
    | SandboxLost
    | SandboxDeleted
)


# --- operations -----------------------------------------------------------------------------------


class Action(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", omit_defaults=True):
    """Base of the operations on a sandbox."""


class Open(Action, frozen=True, kw_only=True, tag="open"):
    """Create it, or wake it up. The reply is :class:`Opened`."""

    spec: SandboxSpec | None = None
    """None: it exists, and its log has the specification."""
    anew: bool = False
    """If its box is lost and it has no checkpoint, make it again from its specification."""


class Exec(Action, frozen=True, kw_only=True, tag="exec"):
    """The reply is :class:`Executed`; the output streams live."""

    argv: list[str]
    cwd: str = ""
    """Absolute, or relative to the root."""
    env: dict[str, str] = {}
    timeout_s: float | None = None
    wait_s: float | None = None
    """Reply after this time even if the command is still running."""
    tty: bool = False
    keep_stdin: bool = False
    user: str = ""


class Interact(Action, frozen=True, kw_only=True, tag="interact"):
    session: int
    data: bytes = b""
    wait_s: float = 0.25


class Kill(Action, frozen=True, kw_only=True, tag="kill"):
    """End the command that another operation started; has no effect if the command has ended."""

    op: str


class KillAll(Action, frozen=True, kw_only=True, tag="kill_all"):
    """End all commands."""


class ReadFile(Action, frozen=True, kw_only=True, tag="read"):
    """Answers :class:`Content`."""

    path: str
    offset: int = 0
    limit: int | None = None
    user: str = ""


class WriteFile(Action, frozen=True, kw_only=True, tag="write"):
    """A whole file; ``append_at``: the next part of one that is too big for a message."""

    path: str
    data: bytes = b""
    append_at: int | None = None
    mode: int | None = None
    user: str = ""


class StatPath(Action, frozen=True, kw_only=True, tag="stat"):
    """Answers a list of one entry."""

    path: str


class ListDir(Action, frozen=True, kw_only=True, tag="list"):
    """Answers :class:`Listing`."""

    path: str
    user: str = ""


class MakeDir(Action, frozen=True, kw_only=True, tag="make_dir"):
    path: str
    parents: bool = False
    user: str = ""


class RemovePath(Action, frozen=True, kw_only=True, tag="remove"):
    path: str
    recursive: bool = False
    user: str = ""


class MovePath(Action, frozen=True, kw_only=True, tag="move"):
    path: str
    target: str
    user: str = ""


class PatchOperation(Spec, frozen=True, kw_only=True):
    kind: Literal["create_file", "update_file", "delete_file"]
    path: str
    diff: str = ""
    move_to: str = ""


class ApplyPatch(Action, frozen=True, kw_only=True, tag="apply_patch"):
    """All or nothing. Answers :class:`Patched`."""

    operations: list[PatchOperation]
    user: str = ""


class RunTool(Action, frozen=True, kw_only=True, tag="tool"):
    """A built-in tool, as a model calls it. The reply is :class:`ToolAnswer`."""

    name: str
    arguments: str
    cwd: str = ""
    user: str = ""


class ApplyPlan(Action, frozen=True, kw_only=True, tag="apply_plan"):
    """Lay these entries out in the live workspace."""

    plan: WorkspacePlan
    only_ephemeral: bool = False


class Checkpoint(Action, frozen=True, kw_only=True, tag="checkpoint"):
    """Answers :class:`Checkpointed`."""

    exclude: list[str] = []
    """In addition to the plan's."""


class Restore(Action, frozen=True, kw_only=True, tag="restore"):
    """Replace the workspace (or a directory in it) by a snapshot."""

    tree: str
    into: str = ""
    clear: bool = True


class SyncMemory(Action, frozen=True, kw_only=True, tag="sync_memory"):
    """Write the current files of a memory to the workspace, and report the changes made there. The
    reply is :class:`MemorySynced`. Does not wake or create a box.
    """

    scope: str


class ResolvePort(Action, frozen=True, kw_only=True, tag="port"):
    """Answers :class:`Endpoint`."""

    port: int


class Probe(Action, frozen=True, kw_only=True, tag="probe"):
    """Is it running? The reply is :class:`Running`. Starts nothing."""


class Pause(Action, frozen=True, kw_only=True, tag="pause"):
    """Freeze it until the next operation."""


class Close(Action, frozen=True, kw_only=True, tag="close"):
    """Checkpoint (unless the request says otherwise) and end the box. The box of a sandbox with
    ``keep_paused`` is paused instead, after a checkpoint. The reply is :class:`Checkpointed`.
    """

    checkpoint: bool = True
    delete: bool = False
    """End its record: it cannot be opened again."""
    exclude: list[str] = []


SandboxAction = (
    Open
    | Exec
    | Interact
    | Kill
    | KillAll
    | ReadFile
    | WriteFile
    | StatPath
    | ListDir
    | MakeDir
    | RemovePath
    | MovePath
    | ApplyPatch
    | RunTool
    | ApplyPlan
    | Checkpoint
    | Restore
    | SyncMemory
    | ResolvePort
    | Probe
    | Pause
    | Close
)


class SandboxRequest(Message, frozen=True, kw_only=True, tag="sandbox.request"):
    """Do this. The same ``op`` again does nothing and gives the same reply."""

    op: str
    action: SandboxAction
    run: str = ""
    """Whose live subject the output goes to; empty: the sandbox's own."""


class SandboxFailure(Spec, frozen=True, kw_only=True):
    """A failure as data; ``code`` is one of the stable codes of the public errors."""

    code: str
    message: str
    op: str = ""
    context: dict[str, Any] = {}
    retryable: bool = False


class SandboxReply(Message, frozen=True, kw_only=True, tag="sandbox.reply"):
    op: str
    result: Raw = NO_JSON
    """The action's own result struct."""
    error: SandboxFailure | None = None
    duration_ms: int = 0


# --- results --------------------------------------------------------------------------------------


class Opened(Spec, frozen=True, kw_only=True):
    sandbox: str
    provider: str
    node: str
    generation: int
    root: str
    created: bool = False
    """Made by this operation, not found."""
    restored: str = ""
    notice: str = ""
    """A warning for people and models: the workspace comes from an older checkpoint."""
    box_id: str = ""
    """The vendor's own id of the box; empty if the box is not at a vendor."""


class Executed(Spec, frozen=True, kw_only=True):
    state: Literal["running", "exited", "lost"]
    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int | None = None
    session: int = 0
    killed: str = ""
    dropped: int = 0
    stdout_object: str = ""
    """The digest of the object with ``stdout``, if it is too big for a message."""
    stderr_object: str = ""


class Content(Spec, frozen=True, kw_only=True):
    data: bytes
    size: int
    """Of the whole file."""


class PathEntry(Spec, frozen=True, kw_only=True):
    path: str
    kind: str
    mode: int = 0
    size: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    target: str = ""


class Listing(Spec, frozen=True, kw_only=True):
    entries: list[PathEntry]


class Patched(Spec, frozen=True, kw_only=True):
    output: str


class ToolAnswer(Spec, frozen=True, kw_only=True):
    output: Raw
    """The output for the model: text or content parts."""
    error: str = ""


class Checkpointed(Spec, frozen=True, kw_only=True):
    tree: str = ""
    files: int = 0
    size_bytes: int = 0
    new_bytes: int = 0


class Endpoint(Spec, frozen=True, kw_only=True):
    host: str
    port: int
    tls: bool = False
    query: str = ""


class MemorySynced(Spec, frozen=True, kw_only=True):
    synced: bool
    """False: the sandbox is not open, or does not have that memory."""
    revision: int = 0
    edits: int = 0
    """How many changed files were reported."""


class Running(Spec, frozen=True, kw_only=True):
    running: bool
    state: str = ""


class LiveOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A live piece of a command's output, on the live subject; never stored."""

    call: str
    stream: Literal["stdout", "stderr"]
    offset: int
    data: bytes
