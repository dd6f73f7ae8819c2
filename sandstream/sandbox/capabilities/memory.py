"""The memory capability: the agent's instructions include what earlier runs learned, and its own
runs add to it.

The files are in the workspace; the memory actor stores their contents in a scope: that of the
workspace, or a named one that many workspaces can share.
"""

from __future__ import annotations

import logging
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field, PrivateAttr, model_validator
from sandstream_bus.wire.memory_specs import MemoryUse, PhaseModel, is_workspace_scope

from sandstream.model_settings import ModelSettings
from sandstream.models.interface import Model
from sandstream.sandbox._memory.config import (
    MemoryGenerateConfig,
    MemoryLayoutConfig,
    MemoryReadConfig,
)
from sandstream.sandbox.capabilities.capability import Capability
from sandstream.sandbox.errors import SandboxError, WorkspaceReadNotFoundError

if TYPE_CHECKING:
    from sandstream.sandbox.manifest import Manifest

logger = logging.getLogger(__name__)

_END_BYTES = 256 * 1024
"""How much to read of each end of the digest: more than fits into the prompt."""


class Memory(Capability):
    """Lets an agent learn from its runs.

    Reading needs ``Shell``, and also ``Filesystem`` if the agent may correct its memory.

    Example:
        capabilities = [Shell(), Filesystem(), Memory(scope="customer-17")]
        agent = SandboxAgent(name="Assistant", capabilities=capabilities)
    """

    model_config = ConfigDict(extra="forbid")

    type: Literal["memory"] = "memory"
    layout: MemoryLayoutConfig = Field(default_factory=MemoryLayoutConfig)
    """The directories of the memory in the workspace."""
    read: MemoryReadConfig | None = Field(default_factory=MemoryReadConfig)
    """None: the memory is not part of the instructions."""
    generate: MemoryGenerateConfig | None = Field(default_factory=MemoryGenerateConfig)
    """None: runs are not remembered. Its old name is ``write``."""
    scope: str | None = None
    """The name of a memory that outlives workspaces and may be shared by many, such as a user's;
    any text. None: the memory belongs to the workspace.
    """
    _has_warned: bool = PrivateAttr(default=False)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            layout: MemoryLayoutConfig | dict[str, Any] = ...,
            read: MemoryReadConfig | dict[str, Any] | None = ...,
            generate: MemoryGenerateConfig | dict[str, Any] | None = ...,
            scope: str | None = None,
            write: MemoryGenerateConfig | dict[str, Any] | None = ...,
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _older_names(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "write" not in given:
            return given
        if "generate" in given:
            raise ValueError("write is an older name of generate: give one of them")
        named = dict(given)
        named["generate"] = named.pop("write")
        return named

    @model_validator(mode="after")
    def _check(self) -> Memory:
        from sandstream_memory.layout import check_layout

        if self.read is None and self.generate is None:
            raise ValueError("a Memory that neither reads nor generates does nothing: set one")
        check_layout(self.layout.memories_dir, self.layout.sessions_dir)
        if self.scope is not None:
            _check_scope(self.scope)
        return self

    @property
    def write(self) -> MemoryGenerateConfig | None:
        """The old name of ``generate``."""
        return self.generate

    def clone(self) -> Memory:
        """A copy for one run. It shares the configuration, which may contain model objects."""
        return self.model_copy(update={"session": None})

    def required_capability_types(self) -> set[str]:
        if self.read is None:
            return set()
        return {"shell", "filesystem"} if self.read.live_update else {"shell"}

    def has_static_instructions(self) -> bool:
        return self.read is None

    async def instructions(self, manifest: Manifest) -> str | None:
        """The memory's section, from the current files of the workspace.

        Args:
            manifest: The manifest of the workspace.

        Returns:
            The section; ``None`` if the agent does not read, or there is no memory yet.
        """
        from sandstream_memory.digest import memory_section
        from sandstream_memory.layout import SUMMARY_FILE

        from sandstream.sandbox._memory.digest import digest_of_ends

        if self.read is None:
            return None
        if self.session is None:
            raise ValueError("Memory has no session yet: bind(session) comes before instructions()")
        directory = PurePosixPath(self.layout.memories_dir)
        path = directory / PurePosixPath(SUMMARY_FILE).name
        try:
            ends = await self.session.read_ends(path, max_bytes=_END_BYTES, user=self.run_as)
            summary = digest_of_ends(*ends)
        except WorkspaceReadNotFoundError:
            return None
        except (SandboxError, ValueError) as error:
            # any user of the workspace can put anything there: that must not fail a run
            self._warn(f"{path} cannot be used: {error}")
            return None
        shown = self.layout.memories_dir
        if self.workspace_scope.cwd is not None:
            shown = self.workspace_scope.model_resource_path(
                workspace_root=manifest.root, workspace_relative_path=directory
            ).as_posix()
        return memory_section(summary, memories_dir=shown, live_update=self.read.live_update)

    def _warn(self, problem: str) -> None:
        """Warn only once: the digest is read before each turn."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the digest of its memory is not in the agent's instructions: %s", problem
            )

    def use(self, *, owned: bool, has_provider: bool) -> MemoryUse:
        """How runs of the agent are remembered, as data.

        Args:
            owned: Whether the sandbox belongs to the run.
            has_provider: Whether the run has its own model provider, which resolves all model
                names.
        """
        generate = self.generate or MemoryGenerateConfig()
        return MemoryUse(
            scope=self.scope or "",
            memories_dir=_normal(self.layout.memories_dir),
            sessions_dir=_normal(self.layout.sessions_dir),
            reads=self.read is not None,
            live_update=self.read is not None and self.read.live_update,
            generates=self.generate is not None,
            max_raw_memories=generate.max_raw_memories_for_consolidation,
            batch_size=generate.batch_size,
            eager=owned and generate.batch_size is None,
            quiet_s=float(generate.quiet_seconds),
            max_bytes=generate.max_bytes,
            extra_prompt=generate.extra_prompt or "",
            phase_one=_phase(
                generate.phase_one_model, generate.phase_one_model_settings, has_provider
            ),
            phase_two=_phase(
                generate.phase_two_model, generate.phase_two_model_settings, has_provider
            ),
            phase_two_max_turns=generate.phase_two_max_turns,
        )


def _phase(model: str | Model, settings: ModelSettings | None, has_provider: bool) -> PhaseModel:
    has_policy = settings is not None and settings.retry is not None and settings.retry.policy
    name = model if isinstance(model, str) else getattr(model, "model", "")
    return PhaseModel(
        model=name if isinstance(name, str) else "",
        settings=settings.to_wire() if settings is not None else {},
        hosted=isinstance(model, Model) or has_provider or bool(has_policy),
    )


def _normal(directory: str) -> str:
    return PurePosixPath(directory).as_posix()


def _check_scope(scope: str) -> None:
    if not scope:
        raise ValueError("Memory(scope='') has no name: leave the scope out, or name one")
    if is_workspace_scope(scope):
        raise ValueError(
            f"Memory(scope={scope!r}): names that begin with 'sandbox:' are those of workspaces"
        )
    try:
        scope.encode()
    except UnicodeEncodeError:
        raise ValueError(f"Memory(scope={scope!r}): a name cannot have a lone surrogate") from None
