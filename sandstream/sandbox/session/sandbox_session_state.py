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
    session_id: uuid.UUID = Field(default_factory=uuid.uuid4)
    snapshot: SerializeAsAny[SnapshotBase]
    manifest: Manifest
    exposed_ports: tuple[int, ...] = ()
    snapshot_fingerprint: str | None = None
    """The digest of the last checkpoint in the object store."""
    snapshot_fingerprint_version: str | None = None
    workspace_root_ready: bool = False
    sandbox_id: str = ""
    """The sandbox's name on the bus."""
    provider: str = DEFAULT_PROVIDER

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
        """The state in the right class, from a state or a dict."""
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

    def model_post_init(self, _context: Any) -> None:
        if not self.sandbox_id:
            self.sandbox_id = f"s-{self.session_id.hex}"
