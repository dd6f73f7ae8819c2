"""Why a patch was refused. The text is for the model; code and context are the public error's."""

from __future__ import annotations

from typing import ClassVar, Literal


class PatchError(Exception):
    """Base: nothing was changed."""

    code: ClassVar[str] = "apply_patch_invalid_diff"

    def __init__(self, message: str, **context: object) -> None:
        super().__init__(message)
        self.context = context


class PatchDiffError(PatchError):
    """The patch cannot be read, or does not fit the file."""


class PatchPathError(PatchError):
    code = "apply_patch_invalid_path"

    def __init__(self, path: str, reason: Literal["escape_root", "empty"]) -> None:
        if reason == "empty":
            message = "apply_patch path must be non-empty"
        else:
            message = f"apply_patch path must not escape root: {path}"
        super().__init__(message, path=path, reason=reason)


class PatchFileNotFound(PatchError):
    code = "apply_patch_file_not_found"

    def __init__(self, path: str) -> None:
        super().__init__(f"apply_patch missing file: {path}", path=path)


class PatchDecodeError(PatchError):
    code = "apply_patch_decode_error"

    def __init__(self, path: str) -> None:
        super().__init__(f"apply_patch could not decode file: {path}", path=path)
