"""The object that carries the user's context through a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic

from typing_extensions import TypeVar

from sandstream.usage import Usage

__all__ = ["AgentHookContext", "RunContextWrapper", "TContext"]

TContext = TypeVar("TContext", default=Any)


@dataclass(eq=False)
class RunContextWrapper(Generic[TContext]):
    """The user's own ``context`` object with what the run knows about itself.

    Tools, hooks, guardrails and dynamic instructions receive it. The context is never shown to
    the model. It lives in the process that hosts the user's Python and does not cross the bus.
    """

    context: TContext
    """What the caller passed to ``Runner.run(context=...)``; ``None`` if nothing."""

    usage: Usage = field(default_factory=Usage)
    """Tokens used by the run so far."""

    turn_input: list[Any] = field(default_factory=list)
    """The input items of the current turn."""

    tool_input: Any | None = None
    """The structured input of an agent that runs as a tool, else ``None``."""


@dataclass(eq=False)
class AgentHookContext(RunContextWrapper[TContext]):
    """What the hooks get at the start and at the end of an agent."""
