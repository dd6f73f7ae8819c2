"""``view_image`` as a model sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from sandstream.sandbox.capabilities.tools.session_tools import (
    ToolApproval,
    ToolSession,
    call_in_session,
)
from sandstream.sandbox.types import User
from sandstream.sandbox.workspace_paths import SandboxWorkspaceScope
from sandstream.tool import FunctionTool, default_tool_error_function
from sandstream.tool_output import ToolOutputImage


class ViewImageArgs(BaseModel):
    path: str = Field(
        description="The image file: a path in the workspace, or below a granted path.",
        min_length=1,
    )


@dataclass(init=False)
class ViewImageTool(FunctionTool):
    """Shows the model a picture from the sandbox."""

    tool_name: ClassVar[str] = "view_image"
    sandbox_tool: ClassVar[str] = "view_image"
    args_model: ClassVar[type[ViewImageArgs]] = ViewImageArgs
    tool_description: ClassVar[str] = (
        "Look at an image file of the sandbox (PNG, JPEG, GIF, WebP, BMP, TIFF or SVG, up to 10MB)."
    )
    session: ToolSession = field(init=False, repr=False, compare=False)
    user: str | User | None = field(default=None, init=False, repr=False, compare=False)
    needs_approval: ToolApproval = field(default=False, init=False, repr=False, compare=False)
    workspace_scope: SandboxWorkspaceScope = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        *,
        session: ToolSession,
        user: str | User | None = None,
        needs_approval: ToolApproval = False,
        workspace_scope: SandboxWorkspaceScope | None = None,
    ) -> None:
        self.session = session
        self.user = user
        self.needs_approval = needs_approval
        self.workspace_scope = workspace_scope or SandboxWorkspaceScope()
        super().__init__(
            name=self.tool_name,
            description=self.tool_description,
            params_json_schema=self.args_model.model_json_schema(),
            on_invoke_tool=self._invoke,
            strict_json_schema=False,
            _on_failure=default_tool_error_function,
            _on_failure_is_default=True,
        )

    async def run(self, args: ViewImageArgs) -> ToolOutputImage | str:
        """Make a call from code."""
        return await self._invoke(None, args.model_dump_json())

    async def _invoke(self, _: object, arguments: str) -> ToolOutputImage | str:
        output: Any = await call_in_session(
            self.session,
            self.sandbox_tool,
            arguments,
            user=self.user,
            workspace_scope=self.workspace_scope,
        )
        if isinstance(output, str):
            return output
        return ToolOutputImage(image_url=output[0]["image_url"])
