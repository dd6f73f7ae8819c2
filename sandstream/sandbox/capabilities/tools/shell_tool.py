"""``exec_command`` and ``write_stdin`` as a model sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from sandstream.sandbox.capabilities.tools.session_tools import (
    SessionTool,
    ToolApproval,
    ToolSession,
)

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
class ExecCommandTool(SessionTool):
    """Runs a command in the sandbox."""

    tool_name: ClassVar[str] = "exec_command"
    sandbox_tool: ClassVar[str] = "exec_command"
    args_model: ClassVar[type[ExecCommandArgs]] = ExecCommandArgs
    tool_description: ClassVar[str] = (
        "Run a shell command in the sandbox. Returns its output; a command that is still running "
        "gets a session ID by which `write_stdin` reaches it."
    )

    async def run(self, args: ExecCommandArgs) -> Any:
        """Make a call from code."""
        return await self._invoke(None, args.model_dump_json())


@dataclass(init=False)
class WriteStdinTool(SessionTool):
    """Talks to a command that is still running."""

    tool_name: ClassVar[str] = "write_stdin"
    sandbox_tool: ClassVar[str] = "write_stdin"
    args_model: ClassVar[type[WriteStdinArgs]] = WriteStdinArgs
    tool_description: ClassVar[str] = (
        "Write to a command that `exec_command` left running, or ask for its new output."
    )

    def __init__(self, *, session: ToolSession, needs_approval: ToolApproval = False) -> None:
        super().__init__(session=session, needs_approval=needs_approval)

    async def run(self, args: WriteStdinArgs) -> Any:
        """Make a call from code."""
        return await self._invoke(None, args.model_dump_json())

    async def _invoke(self, _: object, arguments: str) -> Any:
        if not self.session.supports_pty():
            raise RuntimeError("write_stdin needs a sandbox that supports terminals")
        return await super()._invoke(_, arguments)
