"""The base of capabilities: what an agent can do in a sandbox.

A capability adds tools, text for the system prompt, entries for the workspace and parameters for
the model. Each run works on its own clone, which is bound to the run's session.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import threading
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from sandstream.custom_tool import CustomTool
from sandstream.sandbox.types import User
from sandstream.sandbox.workspace_paths import SandboxWorkspaceScope
from sandstream.tool import FunctionTool

if TYPE_CHECKING:
    from sandstream.sandbox.manifest import Manifest


class Capability(BaseModel):
    """Derive from it, give ``type`` a value, and override the hooks that are needed."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    type: Any
    """A text; each subclass narrows it to its own literal."""
    session: Any = Field(default=None, exclude=True)
    """The sandbox session of the run; None until it is bound."""
    run_as: User | None = Field(default=None, exclude=True)
    workspace_scope: SandboxWorkspaceScope = Field(
        default_factory=SandboxWorkspaceScope, exclude=True, repr=False
    )

    def clone(self) -> Capability:
        """A copy for one run. What can be changed is not shared with the original."""
        return self.model_copy(update={name: _cloned(each) for name, each in vars(self).items()})

    def bind(self, session: Any) -> None:
        self.session = session

    def bind_run_as(self, user: User | None) -> None:
        """As whom the tools of this capability act in the sandbox."""
        self.run_as = user

    def bind_workspace_scope(self, scope: SandboxWorkspaceScope) -> None:
        """Where relative paths of the model start."""
        self.workspace_scope = scope

    def required_capability_types(self) -> set[str]:
        """Types of capabilities that the agent must have as well."""
        return set()

    def tools(self) -> list[Any]:
        """The tools for the model, once a session is bound."""
        return []

    def process_manifest(self, manifest: Manifest) -> Manifest:
        """Add what must be in the workspace, before it is made."""
        return manifest

    def static_instructions(self, manifest: Manifest) -> str | None:
        """Text for the system prompt that is known without looking into the sandbox."""
        return None

    def has_static_instructions(self) -> bool:
        """Whether :meth:`static_instructions` says all that :meth:`instructions` would."""
        return type(self).instructions is Capability.instructions

    async def instructions(self, manifest: Manifest) -> str | None:
        """Text for the system prompt."""
        return self.static_instructions(manifest)

    def sampling_params(self, sampling_params: dict[str, Any]) -> dict[str, Any]:
        """Parameters to add to requests to the model, given those that there are."""
        return {}

    def process_context(self, context: list[Any]) -> list[Any]:
        """The input items that the model shall see."""
        return context


_SHARED = (
    FunctionTool,
    CustomTool,
    SandboxWorkspaceScope,
    asyncio.Event,
    asyncio.Lock,
    asyncio.Semaphore,
    asyncio.Condition,
    threading.Event,
    type(threading.Lock()),
    type(threading.RLock()),
)


def _cloned(value: Any) -> Any:
    if isinstance(value, _SHARED) or _is_session(value) or _is_code(value):
        return value
    if type(value) in (list, set, tuple):
        return type(value)(_cloned(each) for each in value)
    if type(value) is dict:
        return {_cloned(key): _cloned(each) for key, each in value.items()}
    try:
        duplicate = copy.copy(value)
    except TypeError:
        return value  # a generator, a connection: it can only be shared
    if duplicate is not value and hasattr(value, "__dict__"):
        # Not setattr: a frozen object is copied like any other.
        for name, each in vars(value).items():
            duplicate.__dict__[name] = _cloned(each)
    return duplicate


def _is_session(value: Any) -> bool:
    return callable(getattr(type(value), "run_tool", None))


def _is_code(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)
