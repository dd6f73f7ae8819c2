"""The ``apply_patch`` tool for a model: free text in a patch language, constrained by a grammar."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeAlias

from sandstream_actors.run.sandbox_tools import APPLY_PATCH
from sandstream_actors.sandbox.tools.patch_errors import PatchError
from sandstream_actors.sandbox.tools.patch_parse import parse_patch

from sandstream.custom_tool import CustomTool, CustomToolOnApprovalFunction
from sandstream.editor import ApplyPatchOperation, ApplyPatchResult
from sandstream.run_context import RunContextWrapper
from sandstream.sandbox.capabilities.tools.session_tools import ToolSession, call_in_session
from sandstream.sandbox.types import User
from sandstream.sandbox.workspace_paths import SandboxWorkspaceScope

ApplyPatchApprovalFunction: TypeAlias = Callable[
    [RunContextWrapper[Any], ApplyPatchOperation, str], bool | Awaitable[bool]
]
"""``(context, operation, call id)`` -> whether a person must approve this operation."""


class SandboxApplyPatchEditor:
    """Applies single operations in a session's workspace.

    Args:
        session: The sandbox session whose files are changed.
        user: Act as this account; ``None`` is the sandbox's own.
        workspace_scope: The base of relative paths; ``None`` is the root of the workspace.
    """

    def __init__(
        self,
        session: ToolSession,
        *,
        user: str | User | None = None,
        workspace_scope: SandboxWorkspaceScope | None = None,
    ) -> None:
        self.session = session
        self.user = user
        self.workspace_scope = workspace_scope or SandboxWorkspaceScope()

    async def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Create a file.

        Args:
            operation: The path and the text of the file.
        """
        return await self._apply(operation)

    async def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Change a file, and move it if the operation says so.

        Args:
            operation: The path, the hunks and the new path.
        """
        return await self._apply(operation)

    async def delete_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Delete a file.

        Args:
            operation: The path of the file.
        """
        return await self._apply(operation)

    async def _apply(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        fields = {"type": operation.type, "path": operation.path}
        if operation.diff is not None:
            fields["diff"] = operation.diff
        if operation.move_to is not None:
            fields["move_to"] = operation.move_to
        output = await call_in_session(
            self.session,
            SandboxApplyPatchTool.sandbox_tool,
            json.dumps({"operation": fields}),
            user=self.user,
            workspace_scope=self.workspace_scope,
        )
        return ApplyPatchResult(output=output)


class SandboxApplyPatchTool(CustomTool):
    """Changes files of the sandbox with a patch.

    Args:
        session: The sandbox session whose files are changed.
        user: Act as this account; ``None`` is the sandbox's own.
        needs_approval: Whether a person must approve an operation: a bool, or a function that
            decides for each operation.
        on_approval: Asked before a person is, as for any :class:`CustomTool`.
        workspace_scope: The base of relative paths; ``None`` is the root of the workspace.
    """

    sandbox_tool: ClassVar[str] = "apply_patch"

    def __init__(
        self,
        *,
        session: ToolSession,
        user: str | User | None = None,
        needs_approval: bool | ApplyPatchApprovalFunction = False,
        on_approval: CustomToolOnApprovalFunction | None = None,
        workspace_scope: SandboxWorkspaceScope | None = None,
    ) -> None:
        self.session = session
        self.user = user
        self.workspace_scope = workspace_scope or SandboxWorkspaceScope()
        self.editor = SandboxApplyPatchEditor(
            session, user=user, workspace_scope=self.workspace_scope
        )
        super().__init__(
            name="apply_patch",
            description=APPLY_PATCH["description"],
            format=dict(APPLY_PATCH["format"]),
            on_invoke_tool=self._invoke,
            on_approval=on_approval,
        )
        self.needs_approval = needs_approval

    @property
    def operation_needs_approval(self) -> bool | ApplyPatchApprovalFunction:
        """Whether an operation must be approved. Unlike other custom tools, this one is asked about
        each operation and not about the text.
        """
        return self.needs_approval

    @operation_needs_approval.setter
    def operation_needs_approval(self, value: bool | ApplyPatchApprovalFunction) -> None:
        self.needs_approval = value

    def parse_custom_input(self, raw_input: str) -> list[ApplyPatchOperation]:
        """The operations of a patch.

        Args:
            raw_input: The model's text.

        Raises:
            ValueError: if it cannot be parsed.
        """
        try:
            operations = parse_patch(raw_input)
        except PatchError as error:
            raise ValueError(str(error)) from error
        return [
            ApplyPatchOperation(
                type=each.kind,
                path=each.path,
                diff=None if each.kind == "delete_file" else each.diff,
                move_to=each.move_to or None,
            )
            for each in operations
        ]

    async def _invoke(self, _: object, raw_input: str) -> Any:
        return await call_in_session(
            self.session,
            self.sandbox_tool,
            raw_input,
            user=self.user,
            workspace_scope=self.workspace_scope,
        )
