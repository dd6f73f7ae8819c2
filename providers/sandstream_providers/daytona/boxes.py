"""A box in the vendor's words and in ours."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from sandstream_providers.daytona.options import (
    KEPT_MINUTES,
    NET_MINUTES,
    PREFIX,
    DaytonaOptions,
    name_of,
    options_of,
)
from sandstream_providers.hosted import vendor as names
from sandstream_providers.hosted.vendor import VendorBox
from sandstream_providers.interface import BoxSpec

if TYPE_CHECKING:
    from daytona_api_client_async import CreateSandbox, Sandbox, SandboxListItem

State = Literal["running", "starting", "paused", "stopped", "failed"]

START_S = f"{PREFIX}start_timeout"
"""A label for the option ``start_timeout``: the process that wakes a box may be another one."""
_GONE = ("destroyed", "destroying")
_STATES: dict[str, State] = {
    "started": "running",
    "paused": "paused",
    "stopped": "stopped",
    "archived": "stopped",
    "error": "failed",
    "build_failed": "failed",
}
"""All others end by themselves, or are new to us."""


def is_gone(found: Sandbox | SandboxListItem) -> bool:
    """The vendor has removed the box, or does it now."""
    return found.state is not None and found.state.value in _GONE


def box_of(found: Sandbox | SandboxListItem) -> VendorBox:
    """A box that is not gone."""
    state = "" if found.state is None else found.state.value
    return VendorBox(
        id=found.id,
        name=found.name,
        state=_STATES.get(state, "starting"),
        labels=found.labels,
        created_at=_time(found.created_at),
        reason=found.error_reason or "",
    )


def start_s_of(labels: dict[str, str], default: float) -> float:
    """How long the box may take to wake."""
    with contextlib.suppress(KeyError, ValueError):
        return float(labels[START_S])
    return default


def request_of(spec: BoxSpec, target: str) -> CreateSandbox:
    """What we ask the vendor for. The environment of commands is not part of it: it may contain
    secrets, and our agent gets it with each command.
    """
    from daytona_api_client_async import CreateBuildInfo, CreateSandbox

    options = options_of(spec)
    asked = CreateSandbox(
        name=name_of(spec),
        labels=labels_of(spec, options),
        target=target or None,
        network_block_all=True if spec.network == "none" else None,
        auto_stop_interval=options.auto_stop_interval or NET_MINUTES,
        auto_delete_interval=KEPT_MINUTES,
        ttl_minutes=options.ttl_minutes or None,
        snapshot=options.snapshot or None,
        kvm=None,
        spot=None,
    )
    if options.image:
        asked.build_info = CreateBuildInfo(dockerfile_content=f"FROM {options.image}\n")
    if options.resources is not None:
        asked.cpu = options.resources.cpu
        asked.memory = options.resources.memory
        asked.disk = options.resources.disk
    return asked


def labels_of(spec: BoxSpec, options: DaytonaOptions) -> dict[str, str]:
    """By these labels we find our boxes again."""
    ours = {f"{PREFIX}{name}": value for name, value in spec.labels.items() if value}
    if options.start_timeout != DaytonaOptions().start_timeout:
        ours[START_S] = f"{options.start_timeout:g}"
    return {**options.labels, **ours, names.KEY: spec.key}


def _time(text: str | None) -> float:
    """Seconds since the epoch. 0: unknown, which must not keep us from the box."""
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(text or "").timestamp()
    return 0.0
