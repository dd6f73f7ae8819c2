"""What the built-in tools need of a session.

In a run their calls go straight to the sandbox actor, by ``sandbox_tool``; the tool objects only
describe them. Called in the user's own process, they ask the session to do the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from sandstream.run_context import RunContextWrapper
from sandstream.sandbox.types import User
from sandstream.sandbox.workspace_paths import SandboxWorkspaceScope

ToolApproval: TypeAlias = (
    bool | Callable[[RunContextWrapper[Any], dict[str, Any], str], Awaitable[bool]]
)
"""``(context, arguments, call id)`` -> whether a person has to approve this call."""


class ToolSession(Protocol):
    """The part of a sandbox session that tools use."""

    def supports_pty(self) -> bool: ...

    async def run_tool(self, name: str, arguments: str, **scope: Any) -> Any: ...


async def call_in_session(
    session: ToolSession,
    name: str,
    arguments: str,
    *,
    user: str | User | None = None,
    workspace_scope: SandboxWorkspaceScope | None = None,
) -> Any:
    """Have the sandbox make the call. ``cwd`` and ``user`` are passed on only if there are any."""
    scope: dict[str, Any] = {}
    if workspace_scope is not None and workspace_scope.cwd is not None:
        scope["cwd"] = workspace_scope.cwd.as_posix()
    if user is not None:
        scope["user"] = user.name if isinstance(user, User) else user
    return await session.run_tool(name, arguments, **scope)
