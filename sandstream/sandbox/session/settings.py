"""A client's settings for new sandboxes, besides the manifest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

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
