"""What a scripted model was asked, with types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def input_of(request: Mapping[str, object]) -> list[dict[str, Any]]:
    """The items that the model was given."""
    items = request["input"]
    assert isinstance(items, list)
    return items


def part_of(request: Mapping[str, object], name: str) -> Any:
    """Another part of what was asked: ``tools``, ``text``."""
    return request[name]
