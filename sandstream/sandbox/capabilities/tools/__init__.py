"""The tools of the built-in capabilities."""

from __future__ import annotations

from sandstream.sandbox.capabilities.tools.apply_patch_tool import (
    SandboxApplyPatchEditor,
    SandboxApplyPatchTool,
)
from sandstream.sandbox.capabilities.tools.shell_tool import (
    ExecCommandArgs,
    ExecCommandTool,
    WriteStdinArgs,
    WriteStdinTool,
)
from sandstream.sandbox.capabilities.tools.view_image import ViewImageArgs, ViewImageTool

__all__ = [
    "ExecCommandArgs",
    "ExecCommandTool",
    "SandboxApplyPatchEditor",
    "SandboxApplyPatchTool",
    "ViewImageArgs",
    "ViewImageTool",
    "WriteStdinArgs",
    "WriteStdinTool",
]
