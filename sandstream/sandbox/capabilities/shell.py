"""Lets the model run commands in the sandbox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from sandstream.sandbox.capabilities.capability import Capability
from sandstream.sandbox.capabilities.tools.shell_tool import ExecCommandTool, WriteStdinTool
from sandstream.sandbox.workspace_paths import SandboxWorkspaceScope

if TYPE_CHECKING:
    from sandstream.sandbox.manifest import Manifest

SHELL_INSTRUCTIONS = """
Commands:
- `exec_command` runs a command. Look at the exit code before you rely on the output.
- A command that needs longer is left running under a session ID. `write_stdin` with that ID gives
  you its new output, or writes to it; where there is no `write_stdin`, ask for more time at once.
- Start a program with `tty=true` if you want to write to it. Ctrl-C is `\\u0003`.
- Find files and text with `rg --files` and `rg`, or with `find` and `grep` where `rg` is missing.
- Read large files in parts, with `sed -n` for example; do not write scripts only to print files.
""".strip()


@dataclass
class ShellToolSet:
    """The tools of the capability, as passed to ``configure_tools``."""

    exec_command: ExecCommandTool
    """The tool that runs commands."""
    write_stdin: WriteStdinTool | None
    """The tool that writes to running commands; ``None`` if the sandbox has no terminals."""
    workspace_scope: SandboxWorkspaceScope = field(default_factory=SandboxWorkspaceScope)
    """The base of the model's relative paths."""


ShellToolConfigurator = Callable[[ShellToolSet], None]


class Shell(Capability):
    """Lets the model run commands: ``exec_command`` and ``write_stdin``.

    Example:
        agent = SandboxAgent(name="Coder", capabilities=[Shell(), Filesystem()])
    """

    type: Literal["shell"] = "shell"
    configure_tools: ShellToolConfigurator | None = Field(default=None, exclude=True)
    """Called with the tools before they are used; may change or replace them."""

    def tools(self) -> list[Any]:
        if self.session is None:
            raise ValueError("Shell has no session yet: bind(session) comes before tools()")
        toolset = ShellToolSet(
            exec_command=ExecCommandTool(
                session=self.session, user=self.run_as, workspace_scope=self.workspace_scope
            ),
            write_stdin=(
                WriteStdinTool(session=self.session) if self.session.supports_pty() else None
            ),
            workspace_scope=self.workspace_scope,
        )
        if self.configure_tools is not None:
            self.configure_tools(toolset)
        return [tool for tool in (toolset.exec_command, toolset.write_stdin) if tool is not None]

    def static_instructions(self, manifest: Manifest) -> str | None:
        return SHELL_INSTRUCTIONS
