"""The points of a run at which hooks are called, and which of them a user's hooks override."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandstream.lifecycle import AgentHooksBase, RunHooksBase

POINTS = ("agent_start", "agent_end", "llm_start", "llm_end", "handoff", "tool_start", "tool_end")

_OF_AGENT = {"agent_start": "on_start", "agent_end": "on_end"}
"""Points where the methods of agent hooks and run hooks have different names."""

Hook = Callable[..., Any]


def check_run_hooks(hooks: object) -> None:
    """Check that ``hooks`` can be the hooks of a run.

    Raises:
        TypeError: if it is not a ``RunHooks``; most often it is an ``AgentHooks``.
    """
    if hooks is None or isinstance(hooks, RunHooksBase):
        return
    name = type(hooks).__name__
    if isinstance(hooks, AgentHooksBase):
        raise TypeError(
            f"Run hooks must be instances of RunHooks; {name} is an AgentHooks, which belongs to "
            "one agent: Agent(hooks=...)."
        )
    raise TypeError(f"Run hooks must be instances of RunHooks, not {name}.")


def points_of(run_hooks: object, agent_hooks: object) -> list[str]:
    """The points that the user's hooks override, sorted."""
    return sorted(
        point
        for point in POINTS
        if hook_of_run(run_hooks, point) is not None
        or hook_of_agent(agent_hooks, point) is not None
    )


def hook_of_run(hooks: object, point: str) -> Hook | None:
    return _overridden(hooks, RunHooksBase, f"on_{point}")


def hook_of_agent(hooks: object, point: str) -> Hook | None:
    return _overridden(hooks, AgentHooksBase, _OF_AGENT.get(point, f"on_{point}"))


def _overridden(hooks: object, base: type, name: str) -> Hook | None:
    """The method, unless it is the base class's empty one."""
    method: Hook | None = getattr(hooks, name, None)
    if not callable(method) or getattr(method, "__func__", None) is getattr(base, name):
        return None
    return method
