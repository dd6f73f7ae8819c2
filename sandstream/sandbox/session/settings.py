"""A client's settings for new sandboxes, besides the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from sandstream_bus.wire.sandboxes import LimitSpec


@dataclass(frozen=True)
class SandboxSettings:
    ports: tuple[int, ...] = ()
    network: Literal["none", "host"] = "none"
    limits: LimitSpec = field(default_factory=LimitSpec)
    environment: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    login_shell: bool = True
    """Whether ``shell=True`` means a login shell."""
    keeps_root: bool = True
    """Whether the workspace has the root from the manifest."""
    idle_s: float | None = None
    keep_paused: bool = False
    """When the sandbox is closed, its box is paused and kept for a later session."""
    grants_inside: bool = False
    """A path grant without a host path is a path of the sandbox itself, not of its host."""


def limits_of(values: Mapping[str, Any]) -> LimitSpec:
    """A client's ``limits`` in their wire form.

    Raises:
        ValueError: for a limit that does not exist, or a value that is no number.
    """
    unknown = sorted(set(values) - set(LimitSpec.__struct_fields__))
    if unknown:
        known = ", ".join(LimitSpec.__struct_fields__)
        raise ValueError(f"limits: {', '.join(unknown)} is unknown; the limits are {known}")
    try:
        return msgspec.convert(values, LimitSpec, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"limits: {error}") from None
