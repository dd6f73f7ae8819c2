"""The data to resume a sandbox: its name, its manifest, its last checkpoint."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, field_validator
from sandstream_bus.wire.sandbox_specs import DEFAULT_PROVIDER

from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.snapshot import SnapshotBase

StateClass = type["SandboxSessionState"]


class SandboxSessionState(BaseModel):
    """The base of all states. Subclasses register by the default of ``type``."""

    model_config = ConfigDict(arbitrary_types_allowed=True, hide_input_in_errors=True)

    type: str
    """A text; each subclass narrows it to its own literal."""
    session_id: uuid.UUID = Field(default_factory=uuid.uuid4)
    """Identifies the session in events."""
    snapshot: SerializeAsAny[SnapshotBase]
    """Where the workspace is saved."""
    manifest: Manifest
    """The contents of the workspace."""
    exposed_ports: tuple[int, ...] = ()
    """The ports that can be reached from outside."""
    snapshot_fingerprint: str | None = None
    """The digest of the last checkpoint in the object store."""
    snapshot_fingerprint_version: str | None = None
    """How the fingerprint was computed; ``None`` before the first checkpoint."""
    workspace_root_ready: bool = False
    """Whether the sandbox has been opened."""
    sandbox_id: str = ""
    """The sandbox's name on the bus. States of a hosted provider have the vendor's id here."""
    provider: str = DEFAULT_PROVIDER
    """The name of the provider whose actors serve the sandbox."""

    _subclass_registry: ClassVar[dict[str, StateClass]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        field = cls.model_fields["type"]
        if get_origin(field.annotation) is Literal and get_args(field.annotation):
            SandboxSessionState._subclass_registry[str(field.default)] = cls

    @field_validator("snapshot", mode="before")
    @classmethod
    def _parse_snapshot(cls, value: object) -> SnapshotBase:
        return SnapshotBase.parse(value)

    @classmethod
    def parse(cls, payload: object) -> SandboxSessionState:
        """The state in the right class, from a state or a dict.

        Args:
            payload: A state, or a dict with its ``type``.
        """
        if isinstance(payload, SandboxSessionState):
            if type(payload) is not SandboxSessionState:
                return payload
            payload = payload.model_dump()
        if not isinstance(payload, dict):
            raise TypeError(
                f"a session state must be a SandboxSessionState or a dict, not "
                f"{type(payload).__name__}"
            )
        kind = payload.get("type")
        found = SandboxSessionState._subclass_registry.get(str(kind))
        if found is None:
            known = ", ".join(sorted(SandboxSessionState._subclass_registry)) or "none"
            raise ValueError(f"unknown session state type {kind!r}; known are: {known}")
        return found.model_validate(payload)

    @property
    def bus_name(self) -> str:
        """The sandbox's name on the bus."""
        return self.sandbox_id

    def rename(self, name: str) -> None:
        """Mean another sandbox, which does not exist yet.

        Args:
            name: Its name on the bus.
        """
        self.sandbox_id = name

    def note_box(self, box_id: str) -> None:
        """Note the vendor's id of the box. Only states of hosted providers keep it.

        Args:
            box_id: The id; empty if it is not known.
        """

    def model_post_init(self, _context: Any) -> None:
        if not self.sandbox_id:
            self.sandbox_id = f"s-{self.session_id.hex}"
