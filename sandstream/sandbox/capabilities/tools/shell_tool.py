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
    workdir: str | None = None
    shell: str | None = None
    login: bool = True
    tty: bool = False
    yield_time_ms: int = Field(default=10_000, ge=0)
    max_output_tokens: int | None = Field(default=None, ge=1)


class WriteStdinArgs(BaseModel):
    """The arguments of ``write_stdin``."""

    session_id: int
    chars: str = ""
    yield_time_ms: int = Field(default=250, ge=0)
    max_output_tokens: int | None = Field(default=None, ge=1)


@dataclass(init=False)
class ExecCommandTool(SessionTool):
    """Runs a command in the sandbox."""

    tool_name: ClassVar[str] = "exec_command"
    sandbox_tool: ClassVar[str] = "exec_command"
    args_model: ClassVar[type[ExecCommandArgs]] = ExecCommandArgs
    tool_description: ClassVar[str] = EXEC_COMMAND["description"]
    tool_parameters: ClassVar[dict[str, Any] | None] = EXEC_COMMAND["parameters"]

    async def run(self, args: ExecCommandArgs) -> Any:
        """Call the tool from code."""
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
        """Call the tool from code."""
        return await self._invoke(None, args.model_dump_json())

    async def _invoke(self, _: object, arguments: str) -> Any:
        if not self.session.supports_pty():
            raise RuntimeError("write_stdin needs a sandbox that supports terminals")
        return await super()._invoke(_, arguments)
