"""A stand-in for an agent that some other worker offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandstream.agent import Agent


@dataclass
class DeployedAgent(Agent[Any]):
    """Use it as a handoff or, with :meth:`as_tool`, as a tool: by name, wherever it lives.

    When a run starts, the agent that is registered under this name takes its place, with its own
    tools, model, harness pool and worker.
    """
