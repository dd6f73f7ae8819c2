"""Sandbox settings of a run. Also importable from ``sandstream.run_config``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

from pydantic import TypeAdapter

from sandstream.sandbox._memory.config import (
    MemoryGenerateConfig,
    MemoryLayoutConfig,
    MemoryReadConfig,
    MemoryWriteConfig,
)
from sandstream.sandbox.manifest import Manifest, coerce_manifest
from sandstream.sandbox.snapshot import SnapshotBase, SnapshotSpec, SnapshotSpecUnion
from sandstream.sandbox.workspace_paths import SandboxWorkspaceScope, normalize_sandbox_cwd

__all__ = [
    "DEFAULT_PYTHON_SANDBOX_IMAGE",
    "CheckpointWhen",
    "MemoryGenerateConfig",
    "MemoryLayoutConfig",
    "MemoryReadConfig",
    "MemoryWriteConfig",
    "SandboxArchiveLimits",
    "SandboxConcurrencyLimits",
    "SandboxRunConfig",
    "SandboxWorkspaceScope",
]

DEFAULT_PYTHON_SANDBOX_IMAGE: Final = "python:3.14-slim"
CheckpointWhen = Literal["end", "turn", "never"]
GIB = 1024**3
C = TypeVar("C")


@dataclass
class SandboxConcurrencyLimits:
    """How many parts of a manifest are written at once; None: no limit."""

    manifest_entries: int | None = 4
    """How many entries of the manifest."""
    local_dir_files: int | None = 4
    """How many files of one local directory."""

    def validate(self) -> None:
        """Raise an error if a limit is not above zero."""
        _check_positive(self, "concurrency_limits")


@dataclass
class SandboxArchiveLimits:
    """Limits for an archive that is extracted; None: no limit."""

    max_input_bytes: int | None = GIB
    """The size of the archive."""
    max_extracted_bytes: int | None = 4 * GIB
    """The total size of the extracted files."""
    max_members: int | None = 100_000
    """The number of files and directories."""

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raise an error if a limit is not above zero."""
        _check_positive(self, "archive_limits")


@dataclass
class SandboxRunConfig:
    """The sandbox for the sandbox agents of a run.

    A ``session`` belongs to the caller. Otherwise the run creates a session with ``client``, or
    resumes ``session_state``, and closes it at its end. Instead of a class, a dict with its fields
    is accepted.

    Raises:
        ValueError: A limit is below 1, or ``checkpoint`` or ``cwd`` is not allowed.

    Example:
        config = RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()))
        result = await Runner.run(coder, "Fix the tests.", run_config=config)
    """

    client: Any | None = None
    """A ``BaseSandboxClient``."""
    options: Any | None = None
    """Options for that client."""
    session: Any | None = None
    """A live ``BaseSandboxSession``."""
    session_state: Any | None = None
    """A ``SandboxSessionState`` to resume."""
    manifest: Manifest | None = None
    """The manifest of a new session; overrides the agent's ``default_manifest``."""
    snapshot: SnapshotSpec | SnapshotBase | None = None
    """Where the workspace of a new session is saved, or the saved workspace it starts from."""
    concurrency_limits: SandboxConcurrencyLimits = field(default_factory=SandboxConcurrencyLimits)
    """How many parts of the manifest are written at once."""
    archive_limits: SandboxArchiveLimits | None = None
    """Limits for archives that the session extracts."""
    cwd: str | PurePath | None = None
    """The base of the model's relative paths, relative to the root. Not a boundary."""
    checkpoint: CheckpointWhen = field(default="end", kw_only=True)
    """When the workspace is saved: at the end of the run, after each turn, or never."""

    if TYPE_CHECKING:

        def __init__(
            self,
            client: Any | None = None,
            options: Any | None = None,
            session: Any | None = None,
            session_state: Any | None = None,
            manifest: Manifest | dict[str, Any] | None = None,
            snapshot: SnapshotSpec | SnapshotBase | dict[str, Any] | None = None,
            concurrency_limits: SandboxConcurrencyLimits | dict[str, Any] = ...,
            archive_limits: SandboxArchiveLimits | dict[str, Any] | None = None,
            cwd: str | PurePath | None = None,
            *,
            checkpoint: CheckpointWhen = "end",
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.cwd is not None:
            self.cwd = normalize_sandbox_cwd(self.cwd).as_posix()
        if isinstance(self.manifest, dict):
            self.manifest = coerce_manifest(self.manifest, parameter_name="sandbox.manifest")
        if isinstance(self.snapshot, dict):
            self.snapshot = _snapshot_from(self.snapshot)
        if isinstance(self.options, dict) and self.client is not None:
            self.options = _options_from(self.options, self.client.backend_id)
        self.concurrency_limits = _from_dict(
            self.concurrency_limits, SandboxConcurrencyLimits, "sandbox.concurrency_limits"
        )
        self.concurrency_limits.validate()
        if self.archive_limits is not None:
            self.archive_limits = _from_dict(
                self.archive_limits, SandboxArchiveLimits, "sandbox.archive_limits"
            )
        if self.checkpoint not in get_args(CheckpointWhen):
            choices = ", ".join(map(repr, get_args(CheckpointWhen)))
            raise ValueError(f"checkpoint must be one of {choices}, not {self.checkpoint!r}")


def _check_positive(limits: Any, name: str) -> None:
    for each in fields(limits):
        value = getattr(limits, each.name)
        if value is not None and value < 1:
            raise ValueError(f"{name}.{each.name} must be at least 1, or None for no limit")


def _snapshot_from(value: dict[str, Any]) -> SnapshotSpec | SnapshotBase:
    """A dict with an id is a snapshot, one without is a spec."""
    if "id" in value:
        return SnapshotBase.parse(value)
    adapter: TypeAdapter[SnapshotSpec] = TypeAdapter(SnapshotSpecUnion)
    return adapter.validate_python(value)


def _options_from(options: dict[str, Any], backend: str) -> Any:
    """The options for a backend; if the backend has no class for them, the dict itself."""
    from sandstream.sandbox.session.sandbox_client import BaseSandboxClientOptions

    options_class = BaseSandboxClientOptions._subclass_registry.get(backend)
    if options_class is None:
        return options
    kind = options.get("type", backend)
    if kind != backend:
        raise ValueError(f"sandbox.options are for {kind!r}, but the client is for {backend!r}")
    unknown = sorted(str(name) for name in options if name not in options_class.model_fields)
    if unknown:
        raise TypeError(f"sandbox.options has unknown settings: {', '.join(unknown)}")
    return options_class.model_validate({**options, "type": backend})


def _from_dict(value: C | Mapping[str, Any], config_class: type[C], name: str) -> C:
    if isinstance(value, config_class):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(
            f"{name} must be a {config_class.__name__} or a dict, not {type(value).__name__}"
        )
    known = {each.name for each in fields(config_class)}  # type: ignore[arg-type]
    unknown = sorted(str(key) for key in value if key not in known)
    if unknown:
        raise TypeError(f"{name} has unknown settings: {', '.join(unknown)}")
    return config_class(**value)
