"""What crosses the bus about memories: the state of a scope, what is to be done, what was done.

A scope's state is one message, ``<p>.memory.<scope>.state``, replaced under compare-and-set; it
names the scope's files, which lie in an object bucket of their own. What is asked for and what
happened are messages in the log.
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
"""The files of a memory by canonical path: ``memories/…`` and ``sessions/…``, whatever the layout
calls those directories in a workspace.
"""


class Rollout(Spec, frozen=True, kw_only=True):
    """One conversation (or session, group, run) and what became of it."""

    id: str
    name: str
    """The id as a file name."""
    runs: list[str] = []
    """In the order of their ends; one line of its file each."""
    updated_at: str = ""
    terminal_state: str = ""
    extracted: int = 0
    """How many runs the last successful extraction saw."""
    extracting: str = ""
    """The run that extracts; empty: none."""
    attempt: int = 0
    """Of the extraction under way, or of the last one."""
    problem: str = ""
    """Why the last extraction failed."""
    is_slow: bool = False
    """The extraction under way takes long: nobody else waits for it."""
    empty: bool = False
    """The last extraction found nothing worth keeping."""
    slug: str = ""
    summary_file: str = ""
    """Relative to the memory directory."""
    is_merged: bool = False
    """Its raw memory, as it is now, was part of a consolidation."""
    first_merged: int = 0
    """The revision that it became part of the handbook with; 0: none, or not known."""


class Merge(Spec, frozen=True, kw_only=True):
    """A consolidation under way."""

    number: int
    run: str
    sandbox: str
    base: str
    """The digest of the tree that it started from."""
    selected: list[str]
    """Rollouts, newest first."""
    removed: list[str] = []
    """Rollouts that fell out of the selection and are to be forgotten."""
    attempt: int = 1
    reason: str = ""


RevisionKind = Literal["merge", "edit", "undo", "remove", "import"]


class Revision(Spec, frozen=True, kw_only=True):
    """A change of the memory that can be looked at and undone."""

    number: int
    """The state's revision after it."""
    kind: RevisionKind
    at: str
    before: str
    """The digest of the tree before and after, objects of the memory bucket."""
    after: str
    runs: list[str] = []
    """The runs that it was made of."""
    by: str = ""
    """The run that made it, a sandbox, or a person."""
    note: str = ""
    remarks: list[str] = []
    """What of a consolidation's result was kept, completed, left out or deleted, in words."""


class Unfinished(Spec, frozen=True, kw_only=True):
    """A change by a person of which not all that follows from it was done: whoever comes next does
    the rest.
    """

    kind: Literal["undo", "remove", "delete"]
    """``delete``: all of the memory was removed."""
    revision: int
    at: str
    runs: list[str] = []
    """Those of the change that was undone."""
    rollouts: list[str] = []
    """Those that were removed as a whole."""
    stopped: list[str] = []
    """Runs of phases that work on what was removed."""


class MemoryParent(Spec, frozen=True, kw_only=True):
    """The memory of the workspace that this one's workspace was forked from."""

    scope: str
    tree: str
    """The digest (an object of this scope) of what was taken over from it."""
    is_settled: bool = False
    """Nothing more is to be expected from it."""


class MemoryState(Message, frozen=True, kw_only=True, tag="memory.state"):
    """All that is known of one scope."""

    scope: str
    revision: int = 0
    """Counts changes of the tree."""
    tree: Tree = {}
    use: MemoryUse = MemoryUse()
    """As the last run that was remembered had it."""
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
    """Why there must be another consolidation as soon as all extractions are done; empty: none."""
    history: list[Revision] = []
    """The last ones, oldest first."""
    forgotten: list[str] = []
    """Runs that somebody removed: they do not come back."""
    edits: list[int] = []
    """The last edits that were taken over, by the places of their messages in the log."""
    sandboxes: list[str] = []
    """Workspaces that have it, the last used last."""
    parent: MemoryParent | None = None
    outdated: dict[str, int] = {}
    """Objects that nothing names any more and that may still be there, with the places of their
    records in the bucket. They are removed before the state is replaced again.
    """
    unfinished: Unfinished | None = None
    written: str = ""
    """No two big states have the same: whoever removes his own must not take another's along."""


class MemoryStateObject(Message, frozen=True, kw_only=True, tag="memory.state_object"):
    """Stands for a state that is too big for a message: an object of the memory bucket."""

    digest: str
    size_bytes: int


# --- what is to be done ---------------------------------------------------------------------------


class ExtractRequested(Message, frozen=True, kw_only=True, tag="memory.extract"):
    """Extract what is worth remembering from a rollout, unless that was done."""

    rollout: str
    runs: int
    """How many runs of it there must be in the extraction."""
    attempt: int = 1
    watches: str = ""
    """Only look whether this extraction run is alive."""


class MergeRequested(Message, frozen=True, kw_only=True, tag="memory.merge"):
    """Consolidate what was extracted, unless that was done."""

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
    """None: it was deleted."""


class EditRequested(Message, frozen=True, kw_only=True, tag="memory.edit"):
    """Somebody changed the files in a workspace: the agent, or a person by hand."""

    sandbox: str
    base: int
    """The revision that the workspace had."""
    edits: list[FileEdit]
    run: str = ""
    """Whose workspace it is; empty: that of a session."""
    runs: list[str] = []
    """Those that worked there since the last time that something was told."""


# --- what was done --------------------------------------------------------------------------------


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
