"""Registers model classes, including the user's own subclasses, by the name in their ``type``."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound=type[BaseModel])


def type_name(cls: type[BaseModel]) -> str:
    """The default of ``type``; empty if it has no usable default."""
    name: Any = cls.model_fields["type"].default
    return name if isinstance(name, str) else ""


def register_by_type(
    registry: dict[str, M], cls: M, what: str, *, error: type[Exception] = TypeError
) -> None:
    """Register a class under the default of its ``type``, which must be unique."""
    name = type_name(cls)
    if not name:
        raise TypeError(f"{cls.__name__} must give `type` a default, the name of its kind")
    other = registry.setdefault(name, cls)
    if other is not cls:
        raise error(f"{cls.__name__}: {what} type `{name}` belongs to {other.__name__}")
