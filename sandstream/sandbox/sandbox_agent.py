"""An agent that works in a sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandstream.agent import Agent
from sandstream.run_context import RunContextWrapper, TContext
from sandstream.sandbox.capabilities import Capability
from sandstream.sandbox.capabilities.capabilities import Capabilities
from sandstream.sandbox.manifest import Manifest, coerce_manifest
from sandstream.sandbox.types import User

BaseInstructions = (
    str | Callable[[RunContextWrapper[Any], Agent[Any]], Awaitable[str | None] | str | None]
)


@dataclass
class SandboxAgent(Agent[TContext]):
    """An agent with its own workspace: files, commands, ports.

    The run chooses the sandbox (``RunConfig(sandbox=...)``), not the agent. The other arguments are
    those of :class:`~sandstream.Agent`.

    Args:
        default_manifest: What a new workspace holds, unless the run has a manifest of its own.
        base_instructions: Replaces the built-in prompt about work in a sandbox.
        capabilities: What the agent can do in the sandbox. A list of your own replaces the default.
        run_as: The user under which the model's tools work.

    Raises:
        TypeError: A field has a wrong type.

    Example:
        agent = SandboxAgent(name="Coder", instructions="Fix the tests in the workspace.")
        config = RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()))
        result = await Runner.run(agent, "Run the tests.", run_config=config)
    """

    default_manifest: Manifest | None = None
    """The contents of a new workspace, unless the run has its own manifest."""
    base_instructions: BaseInstructions | None = None
    """Replaces the built-in prompt about working in a sandbox."""
    capabilities: Sequence[Capability] = field(default_factory=Capabilities.default)
    """What the agent can do in the sandbox. Your own list replaces the default."""
    run_as: User | str | None = None
    """The user that runs the model's tools."""

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"SandboxAgent {self.name!r}:"
        if isinstance(self.default_manifest, dict):
            self.default_manifest = coerce_manifest(
                self.default_manifest, parameter_name="sandbox.default_manifest"
            )
        if self.default_manifest is not None and not isinstance(self.default_manifest, Manifest):
            raise TypeError(f"{where} default_manifest must be a Manifest or a dict")
        if isinstance(self.run_as, dict):
            self.run_as = User.model_validate(self.run_as)
        if self.run_as is not None and not isinstance(self.run_as, str | User):
            raise TypeError(f"{where} run_as must be a User or a name, not {self.run_as!r}")
        base = self.base_instructions
        if base is not None and not isinstance(base, str) and not callable(base):
            raise TypeError(f"{where} base_instructions must be a string or a function")
        for capability in self.capabilities:
            if not isinstance(capability, Capability):
                raise TypeError(f"{where} {capability!r} is not a Capability")
