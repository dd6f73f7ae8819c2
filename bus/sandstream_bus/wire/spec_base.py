"""The base of everything that describes a run or a sandbox."""

from __future__ import annotations

import msgspec
from msgspec import Raw

NO_JSON = Raw()
"""Absent JSON: msgspec cannot decode ``Raw | None``. It is falsy."""


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Immutable, tolerant of unknown fields."""
