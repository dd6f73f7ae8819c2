"""The ``view_image`` tool for a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from sandstream.sandbox.capabilities.tools.session_tools import (
    SessionTool,
)
from sandstream.tool_output import ToolOutputImage


class ViewImageArgs(BaseModel):
    """The arguments of ``view_image``."""

    path: str = Field(
        description="The image file: a path in the workspace, or below a granted path.",
        min_length=1,
    )


@dataclass(init=False)
class ViewImageTool(SessionTool):
    """Shows the model an image from the sandbox."""

    tool_name: ClassVar[str] = "view_image"
    sandbox_tool: ClassVar[str] = "view_image"
    args_model: ClassVar[type[ViewImageArgs]] = ViewImageArgs
    tool_description: ClassVar[str] = (
        "Look at an image file of the sandbox (PNG, JPEG, GIF, WebP, BMP, TIFF or SVG, up to 10MB)."
    )

    async def run(self, args: ViewImageArgs) -> ToolOutputImage | str:
        """Call the tool from code.

        Args:
            args: The arguments of the call.

        Returns:
            The image, or a text that says why it cannot be shown.
        """
        return await self._invoke(None, args.model_dump_json())

    async def _invoke(self, _: object, arguments: str) -> ToolOutputImage | str:
        output: Any = await super()._invoke(_, arguments)
        if isinstance(output, str):
            return output
        return ToolOutputImage(image_url=output[0]["image_url"])
