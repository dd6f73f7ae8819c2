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
    """Whether the file is created, updated or deleted."""
    path: str
    """The file, relative to the root that the editor works in."""
    diff: str | None = None
    """The change: the new text of a created file, the hunks of an updated one; ``None`` to delete.
    """
    ctx_wrapper: RunContextWrapper[Any] | None = None
    """The context of the run; ``None`` outside a run."""
    move_to: str | None = None
    """The new path of an updated file; ``None`` leaves it where it is."""


@dataclass(slots=True)
class ApplyPatchResult:
    """The outcome of an operation."""

    status: Literal["completed", "failed"] | None = None
    """Whether the operation was carried out; ``None`` if the editor does not say."""
    output: str | None = None
    """A text for the model."""


_Outcome = ApplyPatchResult | str | None


@runtime_checkable
class ApplyPatchEditor(Protocol):
    """Applies the operations of patches."""

    def create_file(self, operation: ApplyPatchOperation) -> _Outcome | Awaitable[_Outcome]:
        """Create a file. It may be async.

        Args:
            operation: The path and the text of the file.

        Returns:
            The outcome, a text for the model, or ``None``.
        """
        ...

    def update_file(self, operation: ApplyPatchOperation) -> _Outcome | Awaitable[_Outcome]:
        """Change a file, and move it if the operation says so. It may be async.

        Args:
            operation: The path, the hunks and the new path.

        Returns:
            The outcome, a text for the model, or ``None``.
        """
        ...

    def delete_file(self, operation: ApplyPatchOperation) -> _Outcome | Awaitable[_Outcome]:
        """Delete a file. It may be async.

        Args:
            operation: The path of the file.

        Returns:
            The outcome, a text for the model, or ``None``.
        """
        ...
