"""A mount is data: the entry says what to mount, its strategy how. A provider activates it."""

from __future__ import annotations

import abc
import builtins
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, SerializeAsAny, field_validator

from sandstream.sandbox._registry import register_by_type
from sandstream.sandbox.entries.base import BaseEntry, default_permissions
from sandstream.sandbox.entries.mounts.patterns import MountPattern, MountPatternBase
from sandstream.sandbox.errors import InvalidManifestPathError, MountConfigError
from sandstream.sandbox.materialization import MaterializedFile
from sandstream.sandbox.workspace_paths import (
    coerce_posix_path,
    posix_path_as_path,
    windows_absolute_path,
)


class MountStrategyBase(BaseModel, abc.ABC):
    """How a mount is made. Subclasses register by the default of their ``type``."""

    type: Any
    """A text; each subclass narrows it to its own literal."""
    _by_type: ClassVar[dict[str, builtins.type[MountStrategyBase]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        register_by_type(MountStrategyBase._by_type, cls, "strategy")

    @classmethod
    def parse(cls, payload: object) -> MountStrategyBase:
        """A strategy from a ``MountStrategyBase`` or from its serialized form.

        Args:
            payload: A strategy, which is returned unchanged, or a mapping with its ``type``.
        """
        if isinstance(payload, MountStrategyBase):
            return payload
        if not isinstance(payload, Mapping):
            raise TypeError(f"a mount strategy must be one or a mapping, not {type(payload)}")
        name = payload.get("type")
        if not isinstance(name, str):
            raise ValueError("a mount strategy given as a mapping must say its `type`")
        strategy_class = MountStrategyBase._by_type.get(name)
        if strategy_class is None:
            known = ", ".join(sorted(MountStrategyBase._by_type))
            raise ValueError(f"unknown mount strategy type `{name}`; known: {known}")
        return strategy_class.model_validate(dict(payload))

    @abc.abstractmethod
    def validate_mount(self, mount: Mount) -> None:
        """Raise :class:`MountConfigError` if the mount cannot be made this way.

        Args:
            mount: The mount that has this strategy.
        """

    def supports_native_snapshot_detach(self, mount: Mount) -> bool:
        """Whether the mount can be detached while a snapshot is made.

        Args:
            mount: The mount that has this strategy.
        """
        return True


class InContainerMountStrategy(MountStrategyBase):
    """Mounted by a program in the sandbox."""

    type: Literal["in_container"] = "in_container"
    pattern: MountPattern
    """The program that mounts, with its settings."""

    def validate_mount(self, mount: Mount) -> None:
        supported = mount.supported_in_container_patterns()
        if not isinstance(self.pattern, supported):
            names = ", ".join(pattern.__name__ for pattern in supported) or "no pattern"
            raise MountConfigError(
                message=f"{mount.type} cannot use {type(self.pattern).__name__}, only {names}",
                context={"type": mount.type},
            )


class DockerVolumeMountStrategy(MountStrategyBase):
    """Mounted by a Docker volume plugin, before the container starts."""

    type: Literal["docker_volume"] = "docker_volume"
    driver: str
    """The name of the volume plugin, such as ``rclone``."""
    driver_options: dict[str, str] = Field(default_factory=dict)
    """Options of the plugin, by name."""

    def validate_mount(self, mount: Mount) -> None:
        supported = mount.supported_docker_volume_drivers()
        if self.driver not in supported:
            names = ", ".join(sorted(supported)) or "none"
            raise MountConfigError(
                message=f"{mount.type}: no Docker volume driver {self.driver!r}; it has: {names}",
                context={"type": mount.type, "driver": self.driver},
            )


MountStrategy = SerializeAsAny[MountStrategyBase]


class Mount(BaseEntry):
    """Base of mounts. Mounted files are never part of a snapshot."""

    _abstract_entry_base: ClassVar[bool] = True

    is_dir: bool = True
    mount_path: Path | None = None
    """The mount point, if it is not the entry's path; relative to the root, or absolute."""
    ephemeral: bool = True
    read_only: bool = True
    """Whether commands can only read the files."""
    mount_strategy: MountStrategy
    """Who mounts it: a program in the sandbox, or a Docker volume plugin."""

    @field_validator("mount_strategy", mode="before")
    @classmethod
    def _parse_mount_strategy(cls, value: object) -> MountStrategyBase:
        return MountStrategyBase.parse(value)

    def model_post_init(self, context: object, /) -> None:
        usual = default_permissions()
        usual.directory = self.permissions.directory
        if self.permissions != usual:
            warnings.warn(
                "permissions of a mount have no effect; set access rights where the data is",
                stacklevel=2,
            )
        usual.directory = True
        self.permissions = usual
        if not (self.supported_in_container_patterns() or self.supported_docker_volume_drivers()):
            raise MountConfigError(
                message=f"{self.type} supports no way of mounting",
                context={"mount_type": self.type},
            )
        self.mount_strategy.validate_mount(self)

    def supported_in_container_patterns(self) -> tuple[builtins.type[MountPatternBase], ...]:
        """The programs in the sandbox that can mount it."""
        return ()

    def supported_docker_volume_drivers(self) -> frozenset[str]:
        """The Docker volume drivers that can mount it."""
        return frozenset()

    def path_in(self, root: Path, entry_path: Path) -> Path:
        """The absolute path of the mount point in a workspace.

        Args:
            root: The root of the workspace.
            entry_path: The entry's path in the manifest, used if there is no ``mount_path``.

        Raises:
            InvalidManifestPathError: ``mount_path`` is a Windows path.
        """
        if self.mount_path is None:
            return root / entry_path
        windows = windows_absolute_path(self.mount_path)
        if windows is not None:
            raise InvalidManifestPathError(rel=windows.as_posix(), reason="absolute")
        return root / posix_path_as_path(coerce_posix_path(self.mount_path))

    async def apply(self, session: Any, dest: Path, base_dir: Path) -> list[MaterializedFile]:
        raise MountConfigError(
            message=f"{self.type} at {dest}: this sandbox cannot mount into a running session",
            context={"mount_type": self.type, "session_type": type(session).__name__},
        )
