"""What crosses the bus of an agent: data only. Callables stay in the pool that hosts them.

A run's first event carries the whole :class:`GraphSpec`, so that any harness replica can take any
turn and a later deployment does not change a run that is under way.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Raw

from sandstream_bus.sandbox_specs import SandboxUse
from sandstream_bus.spec_base import NO_JSON as NO_JSON
from sandstream_bus.spec_base import Spec


class ToolSpec(Spec, frozen=True, kw_only=True):
    """A function tool as the model sees it and as the harness has to treat it."""

    name: str
    definition: Raw
    """The Responses API tool definition, sent to the model as it is."""
    conditional: bool = False
    """``is_enabled`` is a callable: ask the tool host each turn."""
    at_most_once: bool = False
    sandbox: bool = False
    """A built-in of the agent's sandbox: its actor does it, nobody's code is needed."""


class OutputSpec(Spec, frozen=True, kw_only=True):
    """A structured ``output_type``: the schema for the model; the tool host validates."""

    name: str
    schema: Raw
    strict: bool = True


class ToolUseSpec(Spec, frozen=True, kw_only=True):
    """``Agent.tool_use_behavior`` as data."""

    kind: Literal["run_again", "stop_on_first", "stop_at", "ask_host"] = "run_again"
    names: list[str] = []


class AgentSpec(Spec, frozen=True, kw_only=True):
    name: str
    host: str
    """The pool of the tool host that has this agent's callables."""
    model: str
    instructions: str | None = None
    prompt: Raw = NO_JSON
    settings: dict[str, Any] = {}
    tools: list[ToolSpec] = []
    output: OutputSpec | None = None
    tool_use: ToolUseSpec = ToolUseSpec()
    reset_tool_choice: bool = True
    dynamic: bool = False
    """Instructions or prompt are computed: ask the tool host each turn."""
    hosted_model: bool = False
    """The model is an object in the tool host's process."""
    sandbox: SandboxUse | None = None
    """The agent works in a sandbox."""


class GraphSpec(Spec, frozen=True, kw_only=True):
    """All agents that a run can reach. The harness looks them up by name."""

    start: str
    agents: dict[str, AgentSpec]


class RunOptions(Spec, frozen=True, kw_only=True):
    """What a caller may set for one run, in the form that the harness needs."""

    max_turns: int | None = 10
    stream: bool = False
    filters_input: bool = False
    """A ``call_model_input_filter`` waits in the tool host."""
    handled_errors: list[str] = []
    """Kinds of failure for which the tool host has an error handler."""
    tool_not_found: Literal["raise_error", "return_error_to_model"] = "raise_error"
    max_tool_concurrency: int | None = None
    previous_response_id: str | None = None
    conversation_id: str | None = None
    auto_previous_response_id: bool = False
    reasoning_ids: Literal["preserve", "omit"] | None = None
    workflow_name: str = "Agent workflow"
    group_id: str | None = None
    metadata: dict[str, Any] = {}
