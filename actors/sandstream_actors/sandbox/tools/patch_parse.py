"""Parses a model's patch into a list of file operations.

Two forms are read: the freeform envelope (``*** Begin Patch`` ... ``*** End Patch``), and JSON for
models that wrap their patches anyway: one operation, ``{"operation": ...}``,
``{"operations": [...]}`` or a list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from sandstream_bus.wire.sandboxes import PatchOperation

from sandstream_actors.sandbox.tools.patch_errors import PatchDiffError, PatchPathError

BEGIN = "*** Begin Patch"
END = "*** End Patch"
ADD_FILE = "*** Add File: "
DELETE_FILE = "*** Delete File: "
UPDATE_FILE = "*** Update File: "
MOVE_TO = "*** Move to: "


def parse_patch(text: str) -> list[PatchOperation]:
    """The operations in the order of the patch.

    Raises:
        PatchDiffError: if it is neither form.
        PatchPathError: if a JSON operation moves a file to nowhere.
    """
    if text.lstrip().startswith(("{", "[")):
        return _parse_json(text)
    return _Envelope(text).operations()


# --- the freeform envelope ------------------------------------------------------------------------


class _Envelope:
    """A cursor over the lines between the first and the last one."""

    def __init__(self, text: str) -> None:
        # Only LF ends a line: other separators are content of files.
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        lines = [line.removesuffix("\r") for line in lines]
        if not lines or lines[0] != BEGIN:
            raise PatchDiffError(f"apply_patch input must start with '{BEGIN}'")
        if len(lines) < 2 or lines[-1] != END:
            raise PatchDiffError(f"apply_patch input must end with '{END}'")
        self._lines = lines[1:-1]
        self._next = 0

    def operations(self) -> list[PatchOperation]:
        found = []
        while self._next < len(self._lines):
            header = self._lines[self._next]
            self._next += 1
            if header.startswith(ADD_FILE):
                found.append(self._add_file(_path_in(header, ADD_FILE)))
            elif header.startswith(DELETE_FILE):
                found.append(self._delete_file(_path_in(header, DELETE_FILE)))
            elif header.startswith(UPDATE_FILE):
                found.append(self._update_file(_path_in(header, UPDATE_FILE)))
            else:
                raise PatchDiffError(f"Invalid apply_patch file operation header: {header}")
        if not found:
            raise PatchDiffError("apply_patch input must include at least one file operation")
        return found

    def _add_file(self, path: str) -> PatchOperation:
        body = self._body()
        for line in body:
            if not line.startswith("+"):
                raise PatchDiffError(f"Invalid Add File line: {line}")
        if not body:
            raise PatchDiffError(f"Add File patch for {path} must include at least one + line")
        return PatchOperation(kind="create_file", path=path, diff=_diff(body))

    def _delete_file(self, path: str) -> PatchOperation:
        if self._body():
            raise PatchDiffError(f"Delete File patch for {path} must not include a diff")
        return PatchOperation(kind="delete_file", path=path)

    def _update_file(self, path: str) -> PatchOperation:
        body = self._body()
        move_to = ""
        if body and body[0].startswith(MOVE_TO):
            move_to = _path_in(body.pop(0), MOVE_TO)
        if not body:
            raise PatchDiffError(f"Update File patch for {path} must include a hunk")
        return PatchOperation(kind="update_file", path=path, diff=_diff(body), move_to=move_to)

    def _body(self) -> list[str]:
        """The lines up to the next file."""
        start = self._next
        while self._next < len(self._lines):
            if self._lines[self._next].startswith((ADD_FILE, DELETE_FILE, UPDATE_FILE)):
                break
            self._next += 1
        return self._lines[start : self._next]


def _path_in(header: str, prefix: str) -> str:
    path = header.removeprefix(prefix).strip()
    if not path:
        raise PatchDiffError(f"Missing path in apply_patch header: {header}")
    return path


def _diff(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


# --- JSON -----------------------------------------------------------------------------------------


def _parse_json(text: str) -> list[PatchOperation]:
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PatchDiffError(str(error)) from None
    if isinstance(payload, dict):
        operations = payload.get("operations")
        if isinstance(operations, list):
            return [_operation(each) for each in operations]
        operation = payload.get("operation")
        return [_operation(payload if operation is None else operation)]
    return [_operation(each) for each in payload]


def _operation(value: object) -> PatchOperation:
    if not isinstance(value, Mapping):
        raise PatchDiffError("apply_patch operation must be an object")
    kind, path = value.get("type"), value.get("path")
    diff, move_to = value.get("diff"), value.get("move_to")
    if kind not in ("create_file", "update_file", "delete_file"):
        raise PatchDiffError(f"Invalid apply_patch operation type: {kind}")
    if not isinstance(path, str) or not path:
        raise PatchDiffError("apply_patch operation is missing a path")
    if kind == "delete_file":
        diff = ""
    elif not isinstance(diff, str):
        raise PatchDiffError(f"apply_patch operation {kind} is missing a diff")
    if move_to is None:
        return PatchOperation(kind=kind, path=path, diff=diff)
    if not isinstance(move_to, str):
        raise PatchDiffError("apply_patch operation move_to must be a string")
    if not move_to:
        raise PatchPathError(move_to, "empty")
    return PatchOperation(kind=kind, path=path, diff=diff, move_to=move_to)
