"""Settings of a sandbox agent's memory. Also importable from ``sandstream.sandbox.config``."""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from sandstream_bus.wire.memory_specs import MAX_MEMORY_BYTES

from sandstream.model_settings import ModelSettings
from sandstream.models.interface import Model

MAX_RAW_MEMORIES = 4096
LEAST_BYTES = 64 * 1024


@dataclass
class MemoryLayoutConfig:
    """The directories of a memory in the workspace, relative to its root."""

    memories_dir: str = "memories"
    """The memory itself."""
    sessions_dir: str = "sessions"
    """Transcripts: one file per conversation."""
    memory_dir: InitVar[str | None] = field(default=None, kw_only=True)
    """The old name of ``memories_dir``."""
    rollouts_dir: InitVar[str | None] = field(default=None, kw_only=True)
    """The old name of ``sessions_dir``."""

    def __post_init__(self, memory_dir: str | None, rollouts_dir: str | None) -> None:
        for older, name, given in (
            ("memory_dir", "memories_dir", memory_dir),
            ("rollouts_dir", "sessions_dir", rollouts_dir),
        ):
            if given is None:
                continue
            if getattr(self, name) not in (given, getattr(MemoryLayoutConfig, name)):
                raise TypeError(f"MemoryLayoutConfig: {older} is an older name of {name}: give one")
            setattr(self, name, given)
        for name in ("memories_dir", "sessions_dir"):
            value: object = getattr(self, name)
            if not isinstance(value, str):
                raise TypeError(f"MemoryLayoutConfig.{name} must be a path as text, not {value!r}")


@dataclass
class MemoryReadConfig:
    """How an agent uses its memory."""

    live_update: bool = True
    """Whether the agent's own changes to its memory are kept; if not, they are undone."""


def _medium() -> ModelSettings | None:
    return ModelSettings(reasoning={"effort": "medium"})


@dataclass
class MemoryGenerateConfig:
    """How runs become memories: phase one extracts what is worth keeping from a run, phase two
    merges everything into one handbook. Both happen in the background.
    """

    max_raw_memories_for_consolidation: int = 256
    """The number of newest raw memories to keep; older ones are dropped."""
    phase_one_model: str | Model = "gpt-5.4-mini"
    """The model that extracts."""
    phase_one_model_settings: ModelSettings | None = field(default_factory=_medium)
    """Its settings. A dict with their names is accepted too, as for phase two."""
    phase_two_model: str | Model = "gpt-5.5"
    """The model that consolidates."""
    phase_two_model_settings: ModelSettings | None = field(default_factory=_medium)
    """Its settings."""
    extra_prompt: str | None = None
    """What else to remember, in your words; a few lines, for both phases."""
    phase_two_max_turns: int = 500
    """How many model calls one consolidation may make."""

    batch_size: int | None = field(default=None, kw_only=True)
    """The number of new raw memories that starts phase two. None: after each run that has its own
    sandbox, otherwise when the session closes or after ``quiet_seconds`` without activity.
    """
    quiet_seconds: float = field(default=60.0, kw_only=True)
    """The time without activity after which phase two starts."""
    max_bytes: int = field(default=MAX_MEMORY_BYTES, kw_only=True)
    """The maximum total size of the memory's files."""
    wait_for_memory: bool = field(default=False, kw_only=True)
    """Whether ``Runner.run`` with its own sandbox, and the close of a session, wait until the
    memory is ready.
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            max_raw_memories_for_consolidation: int = 256,
            phase_one_model: str | Model = "gpt-5.4-mini",
            phase_one_model_settings: ModelSettings | dict[str, Any] | None = ...,
            phase_two_model: str | Model = "gpt-5.5",
            phase_two_model_settings: ModelSettings | dict[str, Any] | None = ...,
            extra_prompt: str | None = None,
            phase_two_max_turns: int = 500,
            *,
            batch_size: int | None = None,
            quiet_seconds: float = 60.0,
            max_bytes: int = MAX_MEMORY_BYTES,
            wait_for_memory: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        for phase in ("phase_one", "phase_two"):
            settings = getattr(self, f"{phase}_model_settings")
            if settings is not None:
                setattr(self, f"{phase}_model_settings", ModelSettings.coerce(settings))
            model: object = getattr(self, f"{phase}_model")
            if not isinstance(model, Model) and not (isinstance(model, str) and model):
                raise TypeError(
                    f"MemoryGenerateConfig.{phase}_model must be the name of a model or a Model, "
                    f"not {model!r}"
                )
        self._check_number("max_raw_memories_for_consolidation", 1, MAX_RAW_MEMORIES)
        self._check_number("phase_two_max_turns", 1)
        self._check_number("max_bytes", LEAST_BYTES)
        if self.batch_size is not None:
            self._check_number("batch_size", 1)
        quiet: object = self.quiet_seconds
        is_number = isinstance(quiet, int | float) and not isinstance(quiet, bool)
        if not is_number or not math.isfinite(self.quiet_seconds) or self.quiet_seconds <= 0:
            raise ValueError(
                f"MemoryGenerateConfig.quiet_seconds must be seconds greater than 0, not {quiet!r}"
            )
        waits: object = self.wait_for_memory
        if not isinstance(waits, bool):
            raise TypeError(
                f"MemoryGenerateConfig.wait_for_memory must be True or False, not {waits!r}; "
                "a time limit goes to the function wait_for_memory"
            )
        prompt: object = self.extra_prompt
        if prompt is not None and not isinstance(prompt, str):
            raise TypeError(f"MemoryGenerateConfig.extra_prompt must be a text, not {prompt!r}")

    def _check_number(self, name: str, least: int, most: int | None = None) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"MemoryGenerateConfig.{name} must be a whole number, not {value!r}")
        if value < least or (most is not None and value > most):
            allowed = f"at least {least}" if most is None else f"from {least} to {most}"
            raise ValueError(f"MemoryGenerateConfig.{name} must be {allowed}, not {value}")


MemoryWriteConfig: TypeAlias = MemoryGenerateConfig
"""The old name."""
