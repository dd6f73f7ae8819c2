"""The session interface of the built-in tools.

Within a run, calls go directly to the sandbox actor, by ``sandbox_tool``; the tool objects only
describe them. Called in the user's own process, the tools ask the session to do the same.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias

from sandstream.run_context import RunContextWrapper
from sandstream.sandbox.types import User
from sandstream.sandbox.workspace_paths import SandboxWorkspaceScope
from sandstream.tool import FunctionTool, default_tool_error_function

ToolApproval: TypeAlias = (
    bool | Callable[[RunContextWrapper[Any], dict[str, Any], str], Awaitable[bool]]
)
"""``(context, arguments, call id)`` -> whether a person must approve this call."""


class ToolSession(Protocol):
    """The part of a sandbox session that tools use."""

    def supports_pty(self) -> bool: ...

    async def run_tool(self, name: str, arguments: str, **scope: Any) -> Any: ...


@dataclass(init=False)
class SessionTool(FunctionTool):
    """A function tool that works in a sandbox session. Subclasses define its name and arguments.

    Args:
        session: The sandbox session that the tool works in.
        user: Act as this account; ``None`` is the sandbox's own.
        needs_approval: Whether a person must approve a call: a bool, or a function that decides for
            each call.
        workspace_scope: The base of relative paths; ``None`` is the root of the workspace.
    """

    tool_name: ClassVar[str]
    sandbox_tool: ClassVar[str]
    args_model: ClassVar[Any]
    """The pydantic model of its arguments; each subclass narrows it to its own."""
    tool_description: ClassVar[str]
    tool_parameters: ClassVar[dict[str, Any] | None] = None
    """The schema of its arguments; None: the schema of ``args_model``."""
    session: ToolSession = field(init=False, repr=False, compare=False)
    user: str | User | None = field(default=None, init=False, repr=False, compare=False)
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
        self.workspace_scope = workspace_scope or SandboxWorkspaceScope()
        parameters = copy.deepcopy(self.tool_parameters) or _schema_of(self.args_model)
        super().__init__(
            name=self.tool_name,
            description=self.tool_description,
            params_json_schema=parameters,
            on_invoke_tool=self._invoke,
            strict_json_schema=False,
            needs_approval=needs_approval,
            _on_failure=default_tool_error_function,
            _on_failure_is_default=True,
        )

    async def _invoke(self, _: object, arguments: str) -> Any:
        return await call_in_session(
            self.session,
            self.sandbox_tool,
            arguments,
            user=self.user,
            workspace_scope=self.workspace_scope,
        )


def _schema_of(args_model: Any) -> dict[str, Any]:
    """The schema for the model. The docstring of the class is for people and not part of it."""
    schema: dict[str, Any] = args_model.model_json_schema()
    schema.pop("description", None)
    return schema


async def call_in_session(
    session: ToolSession,
    name: str,
    arguments: str,
    *,
    user: str | User | None = None,
    workspace_scope: SandboxWorkspaceScope | None = None,
) -> Any:
    """Let the sandbox make the call. ``cwd`` and ``user`` are passed only if they are set."""
    scope: dict[str, Any] = {}
    if workspace_scope is not None and workspace_scope.cwd is not None:
        scope["cwd"] = workspace_scope.cwd.as_posix()
    if user is not None:
        scope["user"] = user.name if isinstance(user, User) else user
    return await session.run_tool(name, arguments, **scope)
