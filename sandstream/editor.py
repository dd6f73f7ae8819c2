"""The operations of a patch, and the interface of editors that apply them."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from sandstream.run_context import RunContextWrapper

__all__ = [
    "ApplyPatchEditor",
    "ApplyPatchOperation",
    "ApplyPatchOperationType",
    "ApplyPatchResult",
]

ApplyPatchOperationType = Literal["create_file", "update_file", "delete_file"]


@dataclass(slots=True)
class ApplyPatchOperation:
    """The change of a patch to one file."""

    type: ApplyPatchOperationType
    path: str
    diff: str | None = None
    ctx_wrapper: RunContextWrapper[Any] | None = None
    move_to: str | None = None


@dataclass(slots=True)
class ApplyPatchResult:
    """The outcome of an operation."""

    status: Literal["completed", "failed"] | None = None
    output: str | None = None


_Outcome = ApplyPatchResult | str | None


@runtime_checkable
class ApplyPatchEditor(Protocol):
    """Applies the operations of patches."""

    def create_file(self, operation: ApplyPatchOperation) -> _Outcome | Awaitable[_Outcome]: ...

    def update_file(self, operation: ApplyPatchOperation) -> _Outcome | Awaitable[_Outcome]: ...

    def delete_file(self, operation: ApplyPatchOperation) -> _Outcome | Awaitable[_Outcome]: ...
