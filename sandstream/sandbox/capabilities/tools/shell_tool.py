"""The ``exec_command`` and ``write_stdin`` tools for a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, Field
from sandstream_actors.run.sandbox_tools import EXEC_COMMAND, WRITE_STDIN

from sandstream.sandbox.capabilities.tools.session_tools import (
    SessionTool,
    ToolApproval,
    ToolSession,
)


class ExecCommandArgs(BaseModel):
    """The arguments of ``exec_command``; what a model is told of them is in its definition."""

    cmd: str = Field(min_length=1)
    """The command, as a line for the shell."""
    workdir: str | None = None
    """The directory to run it in; ``None`` is the run's working directory."""
    shell: str | None = None
    """The shell program; ``None`` is the default one."""
    login: bool = True
    """Whether the shell is a login shell."""
    tty: bool = False
    """Whether the command gets a terminal."""
    yield_time_ms: int = Field(default=10_000, ge=0)
    """How many milliseconds to wait for output before the command is left running."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """A longer output is shortened to about so many tokens; ``None`` is the default limit."""


class WriteStdinArgs(BaseModel):
    """The arguments of ``write_stdin``."""

    session_id: int
    """The id that ``exec_command`` gave the running command."""
    chars: str = ""
    """The text to write; empty only reads the new output."""
    yield_time_ms: int = Field(default=250, ge=0)
    """How many milliseconds to wait for output."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """A longer output is shortened to about so many tokens; ``None`` is the default limit."""


@dataclass(init=False)
class ExecCommandTool(SessionTool):
    """Runs a command in the sandbox."""

    tool_name: ClassVar[str] = "exec_command"
    sandbox_tool: ClassVar[str] = "exec_command"
    args_model: ClassVar[type[ExecCommandArgs]] = ExecCommandArgs
    tool_description: ClassVar[str] = EXEC_COMMAND["description"]
    tool_parameters: ClassVar[dict[str, Any] | None] = EXEC_COMMAND["parameters"]

    async def run(self, args: ExecCommandArgs) -> Any:
        """Call the tool from code.

        Args:
            args: The arguments of the call.

        Returns:
            The text for the model.
        """
        return await self._invoke(None, args.model_dump_json())


@dataclass(init=False)
class WriteStdinTool(SessionTool):
    """Writes to a command that is still running."""

    tool_name: ClassVar[str] = "write_stdin"
    sandbox_tool: ClassVar[str] = "write_stdin"
    args_model: ClassVar[type[WriteStdinArgs]] = WriteStdinArgs
    tool_description: ClassVar[str] = WRITE_STDIN["description"]
    tool_parameters: ClassVar[dict[str, Any] | None] = WRITE_STDIN["parameters"]

    def __init__(self, *, session: ToolSession, needs_approval: ToolApproval = False) -> None:
        super().__init__(session=session, needs_approval=needs_approval)

    async def run(self, args: WriteStdinArgs) -> Any:
        """Call the tool from code.

        Args:
            args: The arguments of the call.

        Returns:
            The text for the model.
        """
        return await self._invoke(None, args.model_dump_json())

    async def _invoke(self, _: object, arguments: str) -> Any:
        if not self.session.supports_pty():
            raise RuntimeError("write_stdin needs a sandbox that supports terminals")
        return await super()._invoke(_, arguments)
