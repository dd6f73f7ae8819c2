"""An agent's memory settings. Each run carries them, so that the memory actor needs no other
configuration.
"""

from __future__ import annotations

from typing import Any, Literal

from sandstream_bus.wire.spec_base import Spec

MAX_MEMORY_BYTES = 16 * 1024 * 1024
"""The default limit for all files of a scope together."""


class PhaseModel(Spec, frozen=True, kw_only=True):
    """The model of a phase."""

    model: str
    settings: dict[str, Any] = {}
    hosted: bool = False
    """The model is an object in the tool host's process."""
    host: str = ""
    """The pool of that tool host."""


class MemoryUse(Spec, frozen=True, kw_only=True):
    """The memory of a sandbox agent."""

    scope: str = ""
    """A named memory that outlives workspaces; empty: the workspace's own."""
    memories_dir: str = "memories"
    """Relative to the workspace's root, as is the next."""
    sessions_dir: str = "sessions"
    reads: bool = True
    live_update: bool = True
    """Changes that the agent itself makes to its memory are kept."""
    generates: bool = True
    max_raw_memories: int = 256
    """How many of the newest raw memories are consolidated; older ones are forgotten."""
    batch_size: int | None = None
    """Consolidate as soon as there are this many new raw memories; None: see ``eager``."""
    eager: bool = False
    """Consolidate after each run, because its workspace closes with it."""
    quiet_s: float = 60.0
    """Consolidate when no new raw memory came for this time."""
    max_bytes: int = MAX_MEMORY_BYTES
    extra_prompt: str = ""
    phase_one: PhaseModel = PhaseModel(model="gpt-5.4-mini")
    phase_two: PhaseModel = PhaseModel(model="gpt-5.5")
    phase_two_max_turns: int = 500


class MemoryPart(Spec, frozen=True, kw_only=True):
    """A run's relation to a memory: the run is to be remembered, or it is a phase itself."""

    scope: str
    step: Literal["rollout", "extract", "merge"] = "rollout"
    id: str = ""
    """The rollout; for a consolidation its number."""
    attempt: int = 1
    origin: str = ""
    """Of a phase: the run whose settings the phase uses."""


def workspace_scope(sandbox: str, use: MemoryUse) -> str:
    """The scope of a memory that belongs to a workspace: one for each layout."""
    if use.memories_dir == "memories":
        return f"sandbox:{sandbox}"
    return f"sandbox:{sandbox}:{use.memories_dir}"


def scope_of(use: MemoryUse, sandbox: str) -> str:
    """The scope that an agent's memory is kept in."""
    return use.scope or workspace_scope(sandbox, use)


def is_workspace_scope(scope: str) -> bool:
    return scope.startswith("sandbox:")
