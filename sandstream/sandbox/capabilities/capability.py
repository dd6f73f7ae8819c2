"""The base of capabilities, which define what an agent can do in a sandbox.

A capability adds tools, text for the system prompt, entries for the workspace and parameters for
the model. Each run has its own clone, which is bound to the run's session.
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
    """Something that an agent can do in its sandbox: tools, instructions, workspace entries.

    Subclass it, give ``type`` a value, and override the methods you need.

    Example:
        class Greeting(Capability):
            type: Literal["greeting"] = "greeting"

            def static_instructions(self, manifest: Manifest) -> str:
                return "Begin each answer with a greeting."


        agent = SandboxAgent(name="Host", capabilities=[*Capabilities.default(), Greeting()])
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    type: Any
    """A text; each subclass narrows it to its own literal."""
    session: Any = Field(default=None, exclude=True)
    """The sandbox session of the run; None until it is bound."""
    run_as: User | None = Field(default=None, exclude=True)
    """The account as which the tools act in the sandbox; the run sets it."""
    workspace_scope: SandboxWorkspaceScope = Field(
        default_factory=SandboxWorkspaceScope, exclude=True, repr=False
    )
    """The base of the model's relative paths; the run sets it."""

    def clone(self) -> Capability:
        """A copy for one run. Mutable values are not shared with the original."""
        return self.model_copy(update={name: _cloned(each) for name, each in vars(self).items()})

    def bind(self, session: Any) -> None:
        """Give the capability the session that it works in.

        Args:
            session: The sandbox session of the run.
        """
        self.session = session

    def bind_run_as(self, user: User | None) -> None:
        """Set the user as which this capability's tools act in the sandbox.

        Args:
            user: The account; ``None`` is the sandbox's own.
        """
        self.run_as = user

    def bind_workspace_scope(self, scope: SandboxWorkspaceScope) -> None:
        """Set the base of the model's relative paths.

        Args:
            scope: The working directory of the run.
        """
        self.workspace_scope = scope

    def required_capability_types(self) -> set[str]:
        """Types of capabilities that the agent must also have."""
        return set()

    def tools(self) -> list[Any]:
        """The tools for the model, once a session is bound."""
        return []

    def process_manifest(self, manifest: Manifest) -> Manifest:
        """Change the manifest before the workspace is created.

        Args:
            manifest: The manifest of the run.

        Returns:
            The manifest to use.
        """
        return manifest

    def static_instructions(self, manifest: Manifest) -> str | None:
        """Text for the system prompt that does not depend on the sandbox's contents.

        Args:
            manifest: The manifest of the workspace.

        Returns:
            The text; ``None`` for none.
        """
        return None

    def has_static_instructions(self) -> bool:
        """Whether :meth:`static_instructions` returns the same as :meth:`instructions`."""
        return type(self).instructions is Capability.instructions

    async def instructions(self, manifest: Manifest) -> str | None:
        """Text for the system prompt.

        Args:
            manifest: The manifest of the workspace.

        Returns:
            The text; ``None`` for none.
        """
        return self.static_instructions(manifest)

    def sampling_params(self, sampling_params: dict[str, Any]) -> dict[str, Any]:
        """Parameters to add to the given parameters of model requests.

        Args:
            sampling_params: The parameters so far, among them the name of the ``model``.

        Returns:
            Only the parameters to add.
        """
        return {}

    def process_context(self, context: list[Any]) -> list[Any]:
        """Change the input of a model request.

        Args:
            context: The items of the conversation.

        Returns:
            The items for the model.
        """
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
        return value  # a generator or a connection: it can only be shared
    if duplicate is not value and hasattr(value, "__dict__"):
        # Not setattr: frozen objects are copied too.
        for name, each in vars(value).items():
            duplicate.__dict__[name] = _cloned(each)
    return duplicate


def _is_session(value: Any) -> bool:
    return callable(getattr(type(value), "run_tool", None))


def _is_code(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)
