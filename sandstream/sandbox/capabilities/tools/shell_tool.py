"""``exec_command`` and ``write_stdin`` as a model sees them."""

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

_YIELD_TIME = "Milliseconds to wait for the command before an answer comes anyway."
_MAX_OUTPUT = "The most tokens of output to return; the middle of a longer output is left out."


class ExecCommandArgs(BaseModel):
    cmd: str = Field(description="The command, as a line for the shell.", min_length=1)
    workdir: str | None = Field(
        default=None, description="Directory to run it in. Without it: the working directory."
    )
    shell: str | None = Field(
        default=None, description="The shell program to use instead of the default one."
    )
    login: bool = Field(default=True, description="Whether the shell is a login shell.")
    tty: bool = Field(
        default=False,
        description=(
            "Whether to give the command a terminal. Needed for programs that ask questions and "
            "for writing to the command later."
        ),
    )
    yield_time_ms: int = Field(default=10_000, ge=0, description=_YIELD_TIME)
    max_output_tokens: int | None = Field(default=None, ge=1, description=_MAX_OUTPUT)


class WriteStdinArgs(BaseModel):
    session_id: int = Field(description="The session ID of a command that is still running.")
    chars: str = Field(
        default="", description="What to write to it. Nothing: only ask for new output."
    )
    yield_time_ms: int = Field(default=250, ge=0, description=_YIELD_TIME)
    max_output_tokens: int | None = Field(default=None, ge=1, description=_MAX_OUTPUT)


@dataclass(init=False)
class ExecCommandTool(FunctionTool):
    """Runs a command in the sandbox."""

    tool_name: ClassVar[str] = "exec_command"
    sandbox_tool: ClassVar[str] = "exec_command"
    args_model: ClassVar[type[ExecCommandArgs]] = ExecCommandArgs
    tool_description: ClassVar[str] = (
        "Run a shell command in the sandbox. Returns its output; a command that is still running "
        "gets a session ID by which `write_stdin` reaches it."
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

    async def run(self, args: ExecCommandArgs) -> Any:
        """Make a call from code."""
        return await self._invoke(None, args.model_dump_json())

    async def _invoke(self, _: object, arguments: str) -> Any:
        return await call_in_session(
            self.session,
            self.sandbox_tool,
            arguments,
            user=self.user,
            workspace_scope=self.workspace_scope,
        )


@dataclass(init=False)
class WriteStdinTool(FunctionTool):
    """Talks to a command that is still running."""

    tool_name: ClassVar[str] = "write_stdin"
    sandbox_tool: ClassVar[str] = "write_stdin"
    args_model: ClassVar[type[WriteStdinArgs]] = WriteStdinArgs
    tool_description: ClassVar[str] = (
        "Write to a command that `exec_command` left running, or ask for its new output."
    )
    session: ToolSession = field(init=False, repr=False, compare=False)
    needs_approval: ToolApproval = field(default=False, init=False, repr=False, compare=False)

    def __init__(self, *, session: ToolSession, needs_approval: ToolApproval = False) -> None:
        self.session = session
        self.needs_approval = needs_approval
        super().__init__(
            name=self.tool_name,
            description=self.tool_description,
            params_json_schema=self.args_model.model_json_schema(),
            on_invoke_tool=self._invoke,
            strict_json_schema=False,
            _on_failure=default_tool_error_function,
            _on_failure_is_default=True,
        )

    async def run(self, args: WriteStdinArgs) -> Any:
        """Make a call from code."""
        return await self._invoke(None, args.model_dump_json())

    async def _invoke(self, _: object, arguments: str) -> Any:
        if not self.session.supports_pty():
            raise RuntimeError("write_stdin needs a sandbox that supports terminals")
        return await call_in_session(self.session, self.sandbox_tool, arguments)
