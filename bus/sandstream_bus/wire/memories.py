"""The messages about memories: the state of a scope, requests, and events.

A scope's state is one message, ``<p>.memory.<scope>.state``, replaced with compare-and-set. It
names the scope's files, which are in their own object bucket. Requests and events are messages in
the log.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from sandstream_bus.wire.memory_specs import MemoryUse
from sandstream_bus.wire.spec_base import Spec


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Base of the tagged messages here."""


# --- the state of a scope -------------------------------------------------------------------------


class FileRef(Spec, frozen=True, kw_only=True):
    """A file's content, by its SHA-256 in the memory bucket."""

    digest: str
    size: int


Tree = dict[str, FileRef]
"""The files of a memory by canonical path: ``memories/…`` and ``sessions/…``, even if the layout of
a workspace names these directories differently.
"""


class Rollout(Spec, frozen=True, kw_only=True):
    """One conversation (or session, group, run) and its progress through both phases."""

    id: str
    name: str
    """The id as a file name."""
    runs: list[str] = []
    """In the order in which the runs ended; each is one line of the rollout's file."""
    updated_at: str = ""
    terminal_state: str = ""
    extracted: int = 0
    """How many runs the last successful extraction saw."""
    extracting: str = ""
    """The run that extracts; empty: none."""
    attempt: int = 0
    """Of the current extraction, or of the last one."""
    problem: str = ""
    """Why the last extraction failed."""
    is_slow: bool = False
    """The current extraction takes long: consolidations do not wait for it."""
    empty: bool = False
    """The last extraction found nothing worth keeping."""
    slug: str = ""
    summary_file: str = ""
    """Relative to the memory directory."""
    is_merged: bool = False
    """Its current raw memory was part of a consolidation."""
    first_merged: int = 0
    """The revision in which it became part of the handbook; 0: none, or unknown."""


class Merge(Spec, frozen=True, kw_only=True):
    """A running consolidation."""

    number: int
    run: str
    sandbox: str
    base: str
    """The digest of the tree from which it started."""
    selected: list[str]
    """Rollouts, newest first."""
    removed: list[str] = []
    """Rollouts that are no longer selected and have to be forgotten."""
    attempt: int = 1
    reason: str = ""


RevisionKind = Literal["merge", "edit", "undo", "remove", "import"]


class Revision(Spec, frozen=True, kw_only=True):
    """A change of the memory that can be shown and undone."""

    number: int
    """The state's revision after the change."""
    kind: RevisionKind
    at: str
    before: str
    """The digest of the tree before and after, objects of the memory bucket."""
    after: str
    runs: list[str] = []
    """The runs from which the change was made."""
    by: str = ""
    """The writer: a run, a sandbox, or a person."""
    note: str = ""
    remarks: list[str] = []
    """Which parts of a consolidation's result were kept, completed, left out or deleted, as text.
    """


class Unfinished(Spec, frozen=True, kw_only=True):
    """A change by a person whose consequences are not complete. The next actor or command completes
    them.
    """

    kind: Literal["undo", "remove", "delete"]
    """``delete``: all of the memory was removed."""
    revision: int
    at: str
    runs: list[str] = []
    """The runs of the change that was undone."""
    rollouts: list[str] = []
    """The rollouts that were removed completely."""
    stopped: list[str] = []
    """Runs of phases that process removed rollouts."""


class MemoryParent(Spec, frozen=True, kw_only=True):
    """The memory of the workspace from which this memory's workspace was forked."""

    scope: str
    tree: str
    """The digest (an object of this scope) of the state that was copied from it."""
    is_settled: bool = False
    """The other memory will not change any more."""


class MemoryState(Message, frozen=True, kw_only=True, tag="memory.state"):
    """All that is known of one scope."""

    scope: str
    revision: int = 0
    """Counts changes of the tree."""
    tree: Tree = {}
    use: MemoryUse = MemoryUse()
    """The settings of the last remembered run."""
    rollouts: dict[str, Rollout] = {}
    """By id, oldest first."""
    selected: list[str] = []
    """The rollouts of the last consolidation."""
    merging: Merge | None = None
    merges: int = 0
    merge_attempt: int = 0
    """How often the next consolidation has failed."""
    merge_problem: str = ""
    wanted: str = ""
    """Why another consolidation is needed once all extractions are done; empty: it is not."""
    history: list[Revision] = []
    """The newest ones, oldest first."""
    forgotten: list[str] = []
    """Runs that a person removed: they are never added again."""
    edits: list[int] = []
    """The newest edits that were merged, by the sequences of their messages in the log."""
    sandboxes: list[str] = []
    """Workspaces with a copy of this memory, most recently used last."""
    parent: MemoryParent | None = None
    outdated: dict[str, int] = {}
    """Unreferenced objects that may still exist, with the sequences of their records in the bucket.
    They are removed before the state is replaced again.
    """
    unfinished: Unfinished | None = None
    written: str = ""
    """Unique for each big state, so that a cleanup removes only its own object."""


class MemoryStateObject(Message, frozen=True, kw_only=True, tag="memory.state_object"):
    """Stands for a state that is too big for a message: an object of the memory bucket."""

    digest: str
    size_bytes: int


# --- requests -------------------------------------------------------------------------------------


class ExtractRequested(Message, frozen=True, kw_only=True, tag="memory.extract"):
    """Extract the raw memory of a rollout, unless that is done."""

    rollout: str
    runs: int
    """How many runs of the rollout the extraction must include."""
    attempt: int = 1
    watches: str = ""
    """Only check whether this extraction run is alive."""


class MergeRequested(Message, frozen=True, kw_only=True, tag="memory.merge"):
    """Consolidate the raw memories, unless that is done."""

    reason: str
    """``batch``, ``closed``, ``quiet``, ``asked``, ``removed``, ``retry``, ``eager``, or ``again``:
    also if nothing is new.
    """
    attempt: int = 1
    watches: str = ""
    """Only look whether this consolidation run is alive."""


class FileEdit(Spec, frozen=True, kw_only=True):
    path: str
    """Canonical, as in :data:`Tree`."""
    data: bytes | None = None
    """None: the file was deleted."""


class EditRequested(Message, frozen=True, kw_only=True, tag="memory.edit"):
    """The agent, or a person, changed files of the memory in a workspace."""

    sandbox: str
    base: int
    """The revision that the workspace had."""
    edits: list[FileEdit]
    run: str = ""
    """The run that owns the workspace; empty: it belongs to a session."""
    runs: list[str] = []
    """Runs that used the workspace since the last report."""


# --- events ---------------------------------------------------------------------------------------


class MemoryChanged(Message, frozen=True, kw_only=True, tag="memory.changed"):
    revision: int
    kind: Literal["noted", "extracted", "merge", "edit", "undo", "remove", "import"]
    runs: list[str] = []
    rollout: str = ""
    empty: bool = False
    """An extraction that found nothing worth keeping."""


class MemoryFailed(Message, frozen=True, kw_only=True, tag="memory.failed"):
    """A phase failed; it is tried again unless it ``is_final``."""

    step: Literal["extract", "merge", "edit"]
    attempt: int
    error: str
    run: str = ""
    rollout: str = ""
    is_final: bool = False


MemoryRequest = ExtractRequested | MergeRequested | EditRequested
MemoryEvent = MemoryRequest | MemoryChanged | MemoryFailed
