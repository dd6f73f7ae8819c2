"""What the user may say about an E2B sandbox: the ``options`` of a box specification."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any, Literal

import msgspec

from sandstream_providers.hosted.vendor import KEY, PREFIX
from sandstream_providers.interface import BoxSpec, ProviderError

DEFAULT_TIMEOUT_S = 300
TIMEOUT = "sandstream-timeout"
"""The metadata key with the time limit of the box, so that every process can read it."""
_CODE_INTERPRETER = "code-interpreter-v1"


class E2BOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of one box."""

    sandbox_type: Literal["e2b", "e2b_code_interpreter"] = "e2b"
    """Which template is used if none is named."""
    template: str | None = None
    """The name or id of a template or snapshot, which also decides on CPUs and memory."""
    timeout: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Seconds until E2B ends a box that we do not keep alive. None: 300."""
    on_timeout: Literal["pause", "kill"] = "pause"
    auto_resume: bool = True
    """Requests to a port of a paused box wake it. Only for ``on_timeout="pause"``."""
    metadata: dict[str, str] | None = None
    secure: bool = True
    """E2B secures all boxes by now. Accepted, and without effect."""
    allow_internet_access: bool | None = None
    """False: as without a network. None: E2B's own choice."""
    mcp: dict[str, Any] | None = None
    """MCP servers to start in the box."""
    workspace_persistence: Literal["tar", "snapshot"] | None = None
    """Accepted, and without effect: checkpoints of workspaces are our own."""
    users: list[str] = []
    """Accounts to make in the box."""
    groups: dict[str, list[str]] = {}
    """Groups to make, with their members."""

    @property
    def timeout_s(self) -> int:
        return DEFAULT_TIMEOUT_S if self.timeout is None else self.timeout

    @property
    def template_name(self) -> str | None:
        """None: the SDK's choice, which depends on ``mcp``."""
        if self.template or self.sandbox_type == "e2b":
            return self.template
        return _CODE_INTERPRETER

    @property
    def lifecycle(self) -> dict[str, object]:
        if self.on_timeout == "kill":
            return {"on_timeout": "kill"}
        return {"on_timeout": "pause", "auto_resume": self.auto_resume}


def options_of(spec: BoxSpec) -> E2BOptions:
    """Raises ProviderError for an unknown option or a wrong type."""
    known = E2BOptions.__struct_fields__
    unknown = sorted(set(spec.options) - set(known))
    if unknown:
        raise ProviderError(
            f"the E2B provider has no option {', '.join(map(repr, unknown))}; it has: "
            f"{', '.join(known)}"
        )
    try:
        return msgspec.convert(spec.options, E2BOptions)
    except msgspec.ValidationError as error:
        raise ProviderError(f"an option of the E2B provider is wrong: {error}") from error


def metadata_of(spec: BoxSpec, options: E2BOptions) -> dict[str, str]:
    """The user's, and ours, by which any process finds the box. The same for each attempt: E2B
    refuses a key that comes with another order.
    """
    ours = {f"{PREFIX}{name}": value for name, value in spec.labels.items() if value}
    return {
        **(options.metadata or {}),
        **ours,
        KEY: spec.key,
        TIMEOUT: str(options.timeout_s),
    }


def order_of(spec: BoxSpec) -> dict[str, object]:
    """The arguments for the SDK's ``create``. The environment of commands is not among them: it may
    have secrets, and our agent gives it to each command.
    """
    options = options_of(spec)
    order: dict[str, object] = {
        "template": options.template_name,
        "timeout": options.timeout_s,
        "metadata": metadata_of(spec, options),
        "lifecycle": options.lifecycle,
        "allow_internet_access": options.allow_internet_access,
        "idempotency_key": idempotency_key(spec.key),
    }
    if spec.network == "none":
        order["allow_internet_access"] = False
    if options.mcp is not None:
        order["mcp"] = options.mcp
    return order


def idempotency_key(key: str) -> str:
    """E2B takes lower-case letters, digits and hyphens only."""
    if re.fullmatch(r"[a-z0-9-]+", key):
        return key
    return hashlib.sha256(key.encode()).hexdigest()
