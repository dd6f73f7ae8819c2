"""Lets the model change files with patches and view images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from sandstream.sandbox.capabilities.capability import Capability
from sandstream.sandbox.capabilities.tools.apply_patch_tool import SandboxApplyPatchTool
from sandstream.sandbox.capabilities.tools.view_image import ViewImageTool
from sandstream.sandbox.workspace_paths import SandboxWorkspaceScope


@dataclass
class FilesystemToolSet:
    """The tools of the capability, as passed to ``configure_tools``."""

    view_image: ViewImageTool
    """The tool that shows an image to the model."""
    apply_patch: SandboxApplyPatchTool
    """The tool that changes files."""
    workspace_scope: SandboxWorkspaceScope = field(default_factory=SandboxWorkspaceScope)
    """The base of the model's relative paths."""


FilesystemToolConfigurator = Callable[[FilesystemToolSet], None]


class Filesystem(Capability):
    """Lets the model change files and view images: ``view_image`` and ``apply_patch``.

    Example:
        agent = SandboxAgent(name="Writer", capabilities=[Filesystem()])
    """

    type: Literal["filesystem"] = "filesystem"
    configure_tools: FilesystemToolConfigurator | None = Field(default=None, exclude=True)
    """Called with the tools before they are used; may change or replace them."""

    def tools(self) -> list[Any]:
        if self.session is None:
            raise ValueError("Filesystem has no session yet: bind(session) comes before tools()")
        toolset = FilesystemToolSet(
            view_image=ViewImageTool(
                session=self.session, user=self.run_as, workspace_scope=self.workspace_scope
            ),
            apply_patch=SandboxApplyPatchTool(
                session=self.session, user=self.run_as, workspace_scope=self.workspace_scope
            ),
            workspace_scope=self.workspace_scope,
        )
        if self.configure_tools is not None:
            self.configure_tools(toolset)
        return [toolset.view_image, toolset.apply_patch]


class ApplyPatch(Filesystem):
    """An old name: :class:`Filesystem` without images."""

    def tools(self) -> list[Any]:
        return super().tools()[1:]


class Vision(Filesystem):
    """An old name: :class:`Filesystem` for images only."""

    type: Literal["vision"] = "vision"  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]

    def tools(self) -> list[Any]:
        return super().tools()[:1]
