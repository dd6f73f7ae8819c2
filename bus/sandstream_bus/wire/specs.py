"""An agent as data on the bus. Callables stay in the pool that hosts them.

A run's first event carries the whole :class:`GraphSpec`, so that any harness replica can take any
turn, and a later deployment does not change an open run.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Raw

from sandstream_bus.wire.memory_specs import MemoryPart, MemoryUse
from sandstream_bus.wire.sandbox_specs import SandboxUse
from sandstream_bus.wire.spec_base import NO_JSON as NO_JSON
from sandstream_bus.wire.spec_base import Spec

MAX_SECONDS = 1_000_000_000
"""About thirty years: a timer can still be set to it."""
Span = Annotated[float, Meta(gt=0, le=MAX_SECONDS)]
"""A time limit in seconds."""


class Budget(Spec, frozen=True, kw_only=True):
    """Limits of a run and all of its child runs together. None: no limit.

    Example:
        budget = Budget(turns=20, tokens=50_000, seconds=300)
        result = await Runner.run(agent, "Tidy up.", run_config=RunConfig(budget=budget))
    """

    turns: int | None = None
    """Answers of models."""
    tokens: int | None = None
    """Tokens of all model calls, input and output together."""
    tool_calls: int | None = None
    """Calls of tools that the models asked for."""
    seconds: float | None = None
    """Seconds since the run began, waiting for people included."""
    deadline: float | None = None
    """When ``seconds`` are over, as Unix time; child runs inherit the deadline."""

    def __post_init__(self) -> None:
        for name in ("turns", "tokens", "tool_calls"):
            _check(name, getattr(self, name), type(getattr(self, name)) is int)
        _check("seconds", self.seconds, type(self.seconds) in (int, float))
        if self.seconds is not None and self.seconds > MAX_SECONDS:
            raise ValueError(f"a budget's seconds must be at most {MAX_SECONDS:,}, or None")


def _check(name: str, limit: float | None, is_number: bool) -> None:
    if limit is not None and not (is_number and limit >= 0):
        raise ValueError(
            f"a budget's {name} must be a number from 0 on, or None for no limit; it is {limit!r}"
        )


class SessionUse(Spec, frozen=True, kw_only=True):
    """The conversation that a run continues."""

    id: str
    kind: Literal["bus", "host"] = "bus"
    """Kept on the bus, or by an object of the user's in the tool host."""
    busy: Literal["queue", "refuse"] = "queue"
    """What happens while another run holds the conversation."""
    limit: int | None = None
    """How many of its newest items are read."""
    merges: bool = False
    """A ``session_input_callback`` waits in the tool host."""


class RunOptions(Spec, frozen=True, kw_only=True):
    """A caller's settings for one run, in the form that the harness needs."""

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
    traced: bool = True
    """Whether readers of the log may make a trace of the run."""
    trace_contents: bool = True
    """Whether the trace may contain texts of people, models and tools, if the tracing actor stores
    contents.
    """
    budget: Budget | None = None
    session: SessionUse | None = None
    approval_expires_s: float | None = None
    """How long a call waits for a person; None: without limit."""
    approval_expiry: Literal["reject", "approve", "fail"] = "reject"
    formats_rejections: bool = False
    """A ``tool_error_formatter`` waits in the tool host."""
    pre_approval_guardrails: bool = False
    """Guardrails of a tool's input also run before a person is asked."""
    memory: MemoryPart | None = None
    """The run is a phase of a memory."""

    @property
    def is_server_managed(self) -> bool:
        """The model's server keeps the conversation."""
        named = self.previous_response_id or self.conversation_id
        return bool(named or self.auto_previous_response_id)


class ChildSpec(Spec, frozen=True, kw_only=True):
    """An agent as a tool: each call is a child run."""

    graph: str
    """Its key in :attr:`GraphSpec.children`."""
    options: RunOptions = RunOptions()
    input: Literal["plain", "host"] = "plain"
    """``plain``: the argument ``input`` is the child's input; otherwise the tool host produces it.
    """
    output: Literal["plain", "host"] = "plain"
    """``plain``: the child's final text is the tool's output; otherwise the tool host produces it.
    """
    failure: Literal["tell", "raise", "host"] = "tell"
    """If the child fails: the model reads the failure, the run fails too, or the tool host decides.
    """
    watch: bool = False
    """The tool host wants to see the child's events (``on_stream``)."""
    announced: bool = False
    """The tool host reports when it listens, and the child starts only then. Graphs of older
    releases lack this field, because their hosts do not report it.
    """


class ToolSpec(Spec, frozen=True, kw_only=True):
    """A function tool as the model sees it and as the harness handles it."""

    name: str
    definition: Raw
    """The Responses API tool definition, sent to the model unchanged."""
    conditional: bool = False
    """``is_enabled`` is a callable: ask the tool host each turn."""
    at_most_once: bool = False
    sandbox: bool = False
    """A built-in tool of the agent's sandbox: the sandbox actor runs it; no user code is needed."""
    approval: Literal["never", "always", "ask_host"] = "never"
    """Whether a person must approve a call."""
    child: ChildSpec | None = None


class HandoffSpec(Spec, frozen=True, kw_only=True):
    """A tool whose call lets another agent continue the run."""

    name: str
    definition: Raw
    agent: str = ""
    """The key of the next agent; empty: only the user's code knows it."""
    conditional: bool = False
    ask_host: bool = False
    """A callback, a filter, nesting or a hook takes part."""


class OutputSpec(Spec, frozen=True, kw_only=True):
    """A structured ``output_type``: the schema for the model; the tool host validates."""

    name: str
    schema: Raw
    strict: bool = True
    validated: bool = True
    """If false, only the reader of the result validates it."""


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
    memory: MemoryUse | None = None
    """The agent remembers; needs a sandbox."""
    handoffs: list[HandoffSpec] = []
    pool: str = ""
    """The harness pool that takes its turns; empty: the run's pool."""
    remote: bool = False
    """A worker offers this agent; its registration replaces this entry when a run starts."""
    deployed: str = ""
    """The registration from which it came; empty: it belongs to the run itself."""
    deployed_key: str = ""
    """Its key in that registration."""
    lists_tools: bool = False
    """More tools (of MCP servers) are listed by the tool host each turn."""
    guards: list[Literal["blocking", "parallel"]] = []
    """The kinds of its input guardrails, for runs that start with it."""
    guards_announced: bool = False
    """The tool host reports if parallel guardrails do not answer at once, and the model is called
    only then. Graphs of older releases lack this field, because their hosts do not report it.
    """
    checks_output: bool = False
    """It has output guardrails."""
    hooks: list[str] = []
    """The hooks that are registered (see sandstream/_hosting/hooks.py)."""

    @property
    def compacts(self) -> bool:
        """Whether it asks the model's vendor to compact long conversations."""
        wanted = (self.settings.get("extra_args") or {}).get("context_management")
        items = wanted if isinstance(wanted, list) else []
        return any(isinstance(it, dict) and it.get("type") == "compaction" for it in items)


class GraphSpec(Spec, frozen=True, kw_only=True):
    """All agents that a run can reach by handoffs, and all that it can call as tools."""

    start: str
    agents: dict[str, AgentSpec]
    """By key: the agent's name, numbered where two agents have the same."""
    children: dict[str, ChildGraph] = {}
    """The graphs of agents as tools, for runs at any depth."""


class ChildGraph(Spec, frozen=True, kw_only=True):
    """The agents of one agent as a tool."""

    start: str
    agents: dict[str, AgentSpec]
