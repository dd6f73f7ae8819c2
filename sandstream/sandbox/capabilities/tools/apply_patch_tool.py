"""``apply_patch`` as a model sees it: free text in a patch language, held to a grammar."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeAlias

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
"""``(context, operation, call id)`` -> whether a person has to approve this operation."""

PATCH_GRAMMAR = r"""
start: "*** Begin Patch" LF file_change+ "*** End Patch" LF?

file_change: addition | deletion | update
addition: "*** Add File: " path LF new_line+
deletion: "*** Delete File: " path LF
update: "*** Update File: " path LF move? hunk_line+ end_of_file?

move: "*** Move to: " path LF
new_line: "+" /(.*)/ LF
hunk_line: place | change
place: ("@@" | "@@ " /(.+)/) LF
change: (" " | "+" | "-") /(.*)/ LF
end_of_file: "*** End of File" LF
path: /(.+)/

%import common.LF
""".strip()

PATCH_DESCRIPTION = """
Change files of the workspace. The input is a patch in the language below, as plain text and not
as JSON. All of a patch is applied, or, if any part does not fit, none of it.

*** Begin Patch
*** Add File: docs/hello.txt
+Each line of a new file starts with a plus sign.
*** Update File: src/app.py
*** Move to: src/main.py
@@ def greet():
     name = "you"
-    print("Hi")
+    print("Hello,", name)
     return name
*** Delete File: old.txt
*** End Patch

- Each file has a header: `*** Add File: <path>`, `*** Update File: <path>` or
  `*** Delete File: <path>`. Paths are relative, never absolute.
- `*** Move to: <path>` right after an update header renames the file. Nothing follows a delete
  header.
- An update has one or more hunks, each introduced by `@@`. The lines of a hunk start with a space
  (stays as it is), `-` (goes) or `+` (comes).
- Give about three unchanged lines before and after each change, so that its place can be found.
  Do not repeat lines between changes that are close together.
- If that is not enough to find the place, put the line of the class or function after the `@@`.
  Several such lines may follow each other, from the outside to the inside:
  `@@ class Door` and then `@@     def open(self):`.
- `*** End of File` after the last line of a hunk ties it to the end of the file.
- Adding a file that exists is refused. To replace a whole file, delete it and add it again, in the
  same patch.
""".strip()


class SandboxApplyPatchEditor:
    """Applies single operations in a session's workspace."""

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
        return await self._apply(operation)

    async def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        return await self._apply(operation)

    async def delete_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
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
    """Changes files of the sandbox by a patch."""

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
            description=PATCH_DESCRIPTION,
            format={"type": "grammar", "syntax": "lark", "definition": PATCH_GRAMMAR},
            on_invoke_tool=self._invoke,
            on_approval=on_approval,
        )
        self.needs_approval = needs_approval

    @property
    def operation_needs_approval(self) -> bool | ApplyPatchApprovalFunction:
        """Whether an operation has to be approved; unlike other custom tools, this one is asked
        about each operation and not about the text.
        """
        return self.needs_approval

    @operation_needs_approval.setter
    def operation_needs_approval(self, value: bool | ApplyPatchApprovalFunction) -> None:
        self.needs_approval = value

    def parse_custom_input(self, raw_input: str) -> list[ApplyPatchOperation]:
        """The operations of a patch.

        Raises:
            ValueError: if it cannot be read.
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
