"""``RunState``: a run that waits, or was stopped, as a value that can be stored and resumed."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

from sandstream_bus.wire.error_text import error_text
from typing_extensions import TypeVar

from sandstream._surface.agent_graph import reach
from sandstream._surface.run_record import RunRecord
from sandstream._surface.run_state_context import (
    ContextDeserializer,
    ContextOverride,
    ContextSerializer,
    dump_context,
    load_context,
)
from sandstream._surface.run_state_json import SavedState, from_data, from_text, to_data
from sandstream._surface.runtime import SavedRunView, runtime
from sandstream.exceptions import UserError
from sandstream.items import ItemHelpers, ToolApprovalItem, TResponseInputItem
from sandstream.run_config import RunConfig
from sandstream.run_context import RunContextWrapper, TContext
from sandstream.tracing.saved_trace import SavedTrace

if TYPE_CHECKING:
    from sandstream.agent import Agent
    from sandstream.tracing.traces import Trace

TAgent = TypeVar("TAgent", default="Agent[Any]")


class RunState(Generic[TContext, TAgent]):
    """A run up to some event, with the decisions and the input for its continuation.

    Made by ``result.to_state()``, or by :meth:`from_json` and :meth:`from_string`.
    ``Runner.run(agent, state)`` continues the run.

    Args:
        agent: The agent that continues the run.
        record: The run's log up to this point.
        context: The context of the run, with the decisions on its waiting calls.
        pending_input: Input items for the next model call.
        interruptions: The waiting calls; ``None`` finds them in the record.
        hosted: The objects of the run, if it was in this process.
        trace: The trace in which the run continues; ``None`` starts a new one.

    Example:
        state = result.to_state()
        for item in state.get_interruptions():
            state.reject(item, rejection_message="Not today.")
        result = await Runner.run(agent, state)
    """

    def __init__(
        self,
        agent: Agent[Any],
        record: RunRecord,
        context: RunContextWrapper[Any],
        *,
        pending_input: Sequence[TResponseInputItem] = (),
        interruptions: Sequence[ToolApprovalItem] | None = None,
        hosted: object | None = None,
        trace: SavedTrace | None = None,
    ) -> None:
        self.agent = agent
        self.record = record
        self.context = context
        self.hosted = hosted
        """The objects of the run, if it was in this process."""
        self.trace = trace or SavedTrace()
        """The trace in which the run continues."""
        self._pending_input = list(pending_input)
        self._interruptions = interruptions

    @property
    def run_id(self) -> str:
        return self.record.run_id

    # --- approvals ----------------------------------------------------------------------------

    def get_interruptions(self) -> list[ToolApprovalItem]:
        """The calls that wait for a person."""
        if self._interruptions is None:
            self._interruptions = self._view().interruptions
        return [copy.copy(item) for item in self._interruptions]

    def approve(self, approval_item: ToolApprovalItem, always_approve: bool = False) -> None:
        """Allow a waiting call. It is made when the run continues.

        Args:
            approval_item: The waiting call, from :meth:`get_interruptions`.
            always_approve: Also allow all later calls of this tool by this agent.
        """
        self.context.approve_tool(self._known(approval_item), always_approve)

    def reject(
        self,
        approval_item: ToolApprovalItem,
        always_reject: bool = False,
        *,
        rejection_message: str | None = None,
    ) -> None:
        """Refuse a waiting call. The model is told when the run continues.

        Args:
            approval_item: The waiting call, from :meth:`get_interruptions`.
            always_reject: Also refuse all later calls of this tool by this agent.
            rejection_message: The text for the model; ``None`` is a default text.
        """
        self.context.reject_tool(self._known(approval_item), always_reject, rejection_message)

    def _known(self, item: ToolApprovalItem) -> ToolApprovalItem:
        """This state's own item for an item that the caller made."""
        if item.run_id:
            return item
        same = [it for it in self.get_interruptions() if it.call_id == item.call_id]
        return same[0] if len(same) == 1 else item

    # --- more input ----------------------------------------------------------------------------

    @property
    def pending_input(self) -> list[TResponseInputItem]:
        """Input for the next model call."""
        return copy.deepcopy(self._pending_input)

    def add_input(self, input: str | list[TResponseInputItem]) -> None:
        """Add input for the next model call.

        Args:
            input: The user's message, or a list of items.

        Raises:
            UserError: The run makes no other model call.
        """
        self._check_goes_on()
        self._pending_input.extend(copy.deepcopy(ItemHelpers.input_to_new_input_list(input)))

    def clear_pending_input(self) -> None:
        """Remove the added input."""
        self._pending_input = []

    def _check_goes_on(self) -> None:
        """Raise if there will be no other model call."""
        state = self.record.state
        if state.done is not None and state.done.status != "cancelled":
            raise UserError("the run is over: start another one with this input")
        limit = state.options.max_turns
        if limit is not None and state.turn >= limit:
            raise UserError(f"the run has no turns left (max_turns={limit}) to read more input")
        behavior = state.agent.tool_use
        names = {call.name for call in state.tool_calls}
        ends = behavior.kind in ("stop_on_first", "ask_host") or names & set(behavior.names)
        if state.waiting is not None and ends and not state.handoff_calls:
            raise UserError(
                "the result of the waiting call may end the run (tool_use_behavior): further input "
                "would not be read"
            )

    # --- traces --------------------------------------------------------------------------------

    def set_trace(self, trace: Trace | None) -> None:
        """Choose the trace in which trace processors see the continued run.

        Args:
            trace: The trace; ``None`` is a trace of its own.
        """
        self.trace = SavedTrace.of(trace)

    # --- storing -------------------------------------------------------------------------------

    def to_json(
        self,
        *,
        context_serializer: ContextSerializer | None = None,
        strict_context: bool = False,
        include_tracing_api_key: bool = False,
    ) -> dict[str, Any]:
        """The state as plain JSON values.

        Anyone who can change them controls the run: store them where only you can write.

        Args:
            context_serializer: Turns the run's context into a mapping; ``None`` stores mappings,
                pydantic models and dataclasses as they are and leaves out other objects.
            strict_context: Refuse a context that is neither a mapping nor has a serializer.
            include_tracing_api_key: Also store the API key of the trace.

        Returns:
            The values, for :meth:`from_json`.

        Raises:
            UserError: The context or the pending input is not JSON.
        """
        context, meta = dump_context(self.context.context, context_serializer, strict_context)
        saved = SavedState(
            run_id=self.record.run_id,
            last_sequence=self.record.last_sequence,
            events=self.record.past(),
            decisions=self.context.approvals.all,
            pending_input=self._pending_input,
            context=context,
            context_meta=meta,
            traceparent=self.trace.traceparent,
            trace=self.trace.trace if include_tracing_api_key else self.trace.without_key(),
        )
        try:
            return to_data(saved)
        except TypeError as error:
            raise UserError(f"the pending input is not JSON: {error_text(error)}") from None

    def to_string(
        self,
        *,
        context_serializer: ContextSerializer | None = None,
        strict_context: bool = False,
        include_tracing_api_key: bool = False,
    ) -> str:
        """The state as JSON text; see :meth:`to_json`.

        Args:
            context_serializer: Turns the run's context into a mapping.
            strict_context: Refuse a context that is neither a mapping nor has a serializer.
            include_tracing_api_key: Also store the API key of the trace.

        Returns:
            The text, for :meth:`from_string`.

        Raises:
            UserError: The context or the pending input is not JSON.
        """
        return json.dumps(
            self.to_json(
                context_serializer=context_serializer,
                strict_context=strict_context,
                include_tracing_api_key=include_tracing_api_key,
            )
        )

    @staticmethod
    async def from_json(
        initial_agent: Agent[Any],
        state_json: Mapping[str, Any],
        *,
        context_override: ContextOverride | None = None,
        context_deserializer: ContextDeserializer | None = None,
        strict_context: bool = False,
    ) -> RunState[Any, Agent[Any]]:
        """Load a state from the result of :meth:`to_json`.

        Args:
            initial_agent: The agent that the run began with. Agents, tools and callables come from
                it and from the agents that it reaches.
            state_json: The stored values.
            context_override: The context of the continued run, instead of the stored one.
            context_deserializer: Makes the context from the stored mapping.
            strict_context: Refuse a context that was converted or left out when it was stored,
                unless it is overridden or deserialized.

        Returns:
            The state.

        Raises:
            UserError: The values are not a state, were changed, or belong to other agents.
        """
        saved = from_data(state_json)
        return _restored(
            initial_agent, saved, context_override, context_deserializer, strict_context
        )

    @staticmethod
    async def from_string(
        initial_agent: Agent[Any],
        state_string: str,
        *,
        context_override: ContextOverride | None = None,
        context_deserializer: ContextDeserializer | None = None,
        strict_context: bool = False,
    ) -> RunState[Any, Agent[Any]]:
        """Load a state from the result of :meth:`to_string`.

        Args:
            initial_agent: The agent that the run began with; see :meth:`from_json`.
            state_string: The stored text.
            context_override: The context of the continued run, instead of the stored one.
            context_deserializer: Makes the context from the stored mapping.
            strict_context: Refuse a context that was converted or left out when it was stored,
                unless it is overridden or deserialized.

        Returns:
            The state.

        Raises:
            UserError: The text is not a state, was changed, or belongs to other agents.

        Example:
            state = await RunState.from_string(agent, Path("state.json").read_text())
            result = await Runner.run(agent, state)
        """
        saved = from_text(state_string)
        return _restored(
            initial_agent, saved, context_override, context_deserializer, strict_context
        )

    @property
    def given_input(self) -> str | list[TResponseInputItem]:
        """The input that the run began with."""
        return self._view().given_input

    # --- for the runner ------------------------------------------------------------------------

    def _check_agents(self, agent: Agent[Any]) -> None:
        """Check that the run's agents can be reached from ``agent``."""
        found = reach(agent, RunConfig()).own.agents
        missing = sorted(self.record.agents() - set(found))
        if missing:
            raise UserError(
                f"the run state is of other agents: {', '.join(map(repr, missing))} cannot be "
                f"reached from {agent.name!r} (which reaches {', '.join(map(repr, found))}). "
                "Resume it with the agent that the run began with"
            )
        state = self.record.state
        if state.waiting is None or state.agent.sandbox is not None:
            return  # the capabilities of a sandbox agent bring more tools, bound to its sandbox
        known = {tool.name for tool in found[state.agent_name].tools}
        began_with = {tool.name for tool in state.agent.tools}  # a server may list more of them
        lost = {it.name for it in state.waiting.approvals if not it.run} & began_with - known
        if lost:
            raise UserError(
                f"the run state waits for {', '.join(sorted(map(repr, lost)))}, which the "
                f"agent {state.agent.name!r} does not have here. Resume it with the agent that the "
                "run began with"
            )

    def _view(self) -> SavedRunView:
        return runtime().view(self)

    def __repr__(self) -> str:
        state = self.record.state
        what = "over" if state.done else "waiting" if state.waiting else "under way"
        return f"RunState(run {self.record.run_id}, turn {state.turn}, {what})"


def _restored(
    agent: Agent[Any],
    saved: SavedState,
    override: ContextOverride | None,
    deserializer: ContextDeserializer | None,
    strict: bool,
) -> RunState[Any, Agent[Any]]:
    from sandstream._surface.approval_records import Approvals
    from sandstream.usage import usage_of

    record = saved.record()
    context = load_context(
        saved.context,
        saved.context_meta,
        override=override,
        deserializer=deserializer,
        strict=strict,
    )
    context._set_approvals(Approvals.of(saved.decisions))
    context.usage = usage_of(record.state.usage)
    state = RunState[Any, "Agent[Any]"](
        agent,
        record,
        context,
        pending_input=saved.pending_input,
        trace=SavedTrace(saved.traceparent, saved.trace),
    )
    state._check_agents(agent)
    return state
