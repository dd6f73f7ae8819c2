"""The calls of a model's answer: requests, results and decisions of people.

This part of a run's state answers questions about calls. Pure, like the rest of the state.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    ChildWaiting,
    Reviewed,
    RunStarted,
    RunWaiting,
)
from sandstream_bus.wire.specs import AgentSpec, HandoffSpec, RunOptions, ToolSpec
from sandstream_bus.wire.subjects import is_token

from sandstream_actors.run.call_results import (
    child_result,
    early_of,
    looking_at,
    rejected_result,
    without_early,
)
from sandstream_actors.run.output_items import AnswerView, ToolCall

Gate = Literal["free", "wait", "rejected"]


class _Sorted:
    """The calls of one answer of one agent: the part that does not change while they are in
    progress.
    """

    def __init__(
        self, agent: AgentSpec | None, answer: AnswerView | None, disabled: set[str]
    ) -> None:
        self.agent, self.answer, self.disabled = agent, answer, disabled
        # the first of a name counts
        self.tools = {it.name: it for it in reversed(agent.tools)} if agent else {}
        self.handoffs = {it.name: it for it in reversed(agent.handoffs)} if agent else {}
        calls = answer.tool_calls if answer else []
        self.handoff_calls = [call for call in calls if self.handoff(call) is not None]
        self.tool_calls = [call for call in calls if self.handoff(call) is None]
        self.open_calls = self.tool_calls
        self.seen: tuple[int, int, Reviewed | None] = (0, 0, None)
        """How many results and decisions there were when ``open_calls`` was computed."""

    def handoff(self, call: ToolCall) -> HandoffSpec | None:
        if call.is_custom or call.name in self.disabled:
            return None
        return self.handoffs.get(call.name)


class AnswerCalls:
    """The state of the last answer's calls."""

    turn: int

    def __init__(self) -> None:
        self.started: RunStarted | None = None
        self.agents: dict[str, AgentSpec] = {}
        self.agent_name = ""
        self.answer: AnswerView | None = None
        """The last answer. The requests and results of its calls are in ``asked`` and ``results``.
        """
        self.asked: dict[str, CallRequested] = {}
        self.results: dict[str, CallFinished] = {}
        self.disabled_tools: set[str] = set()
        """Tools that the last answer could not use."""
        self.listed_tools: dict[str, ToolSpec] = {}
        """Tools that were offered for the last answer only."""
        self.reviewed: Reviewed | None = None
        self.requested: dict[str, ApprovalRequested] = {}
        """Calls of this turn for which a person was asked."""
        self.decided: dict[str, ApprovalDecided] = {}
        self.sticky: dict[tuple[str, str], ApprovalDecided] = {}
        """Answers that hold for an agent's later calls of a tool."""
        self.child_waits: dict[str, ChildWaiting] = {}
        """Calls whose child runs wait for a person."""
        self.decided_below: dict[int, ApprovalDecided] = {}
        """Decisions about calls of child runs, by their sequences in the log."""
        self.waiting: RunWaiting | None = None
        self._last_sorted = _Sorted(None, None, self.disabled_tools)

    @property
    def _sorted(self) -> _Sorted:
        """An answer may have a hundred calls, and each of their results asks for all of them."""
        agent = self.agents.get(self.agent_name)
        last = self._last_sorted
        if (
            last.agent is not agent
            or last.answer is not self.answer
            or last.disabled is not self.disabled_tools
        ):
            self._last_sorted = last = _Sorted(agent, self.answer, self.disabled_tools)
        return last

    @property
    def options(self) -> RunOptions:
        assert self.started is not None
        return self.started.options

    def change_options(self, **changed: object) -> None:
        """From here on the run has these options."""
        if self.started is not None and changed:
            options = msgspec.structs.replace(self.options, **changed)
            self.started = msgspec.structs.replace(self.started, options=options)

    @property
    def agent(self) -> AgentSpec:
        return self.agents[self.agent_name]

    def tool(self, name: str) -> ToolSpec | None:
        """A tool of the current agent, as the last request offered it."""
        return self._sorted.tools.get(name) or self.listed_tools.get(name)

    def handoff(self, call: ToolCall) -> HandoffSpec | None:
        """The handoff that a call names; a handoff has priority over a tool of the same name."""
        return self._sorted.handoff(call)

    @property
    def tool_calls(self) -> list[ToolCall]:
        return self._sorted.tool_calls

    @property
    def handoff_calls(self) -> list[ToolCall]:
        return self._sorted.handoff_calls

    def gate(self, call: ToolCall) -> Gate:
        """May the call be made?"""
        decision = self.decision(call)
        if decision is not None:
            return "free" if decision.approve else "rejected"
        if self.reviewed is not None and call.id in self.reviewed.outputs:
            return "rejected"
        return "wait" if self.needs_approval(call) else "free"

    def needs_approval(self, call: ToolCall) -> bool:
        tool = self.tool(call.name)
        if tool is None or tool.approval == "never":
            return False
        if tool.approval == "always":
            return True
        return self.reviewed is None or call.id in self.reviewed.needs_approval

    def decision(self, call: ToolCall) -> ApprovalDecided | None:
        """A person's answer: for this call, or else for all of this tool's."""
        own = self.decided.get(call.id)
        tool = self.tool(call.name)
        if own is not None or tool is None or not self.needs_approval(call):
            return own
        if tool.approval == "ask_host" and self.reviewed is None:
            return None  # it is not known yet whether an approval is needed
        return self.sticky.get((self.agent_name, call.name))

    def open_approvals(self) -> list[ApprovalRequested]:
        """The open approvals, including those of child runs."""
        calls = {call.id: call for call in self.tool_calls}
        own = [
            it
            for name, it in self.requested.items()
            if name in calls and self.gate(calls[name]) == "wait"
        ]
        nested = [
            it
            for call, wait in self.child_waits.items()
            if call not in self.results
            for it in wait.approvals
        ]
        return own + nested

    def settled(self, call: ToolCall) -> CallFinished | None:
        """The outcome of a call as the model will see it; None while something is missing."""
        was_judged = self.decided or self.sticky or self.reviewed is not None
        if was_judged and self.gate(call) == "rejected":
            return rejected_result(self, call)
        result = self.results.get(call.id)
        if result is None:
            return None
        tool = self.tool(call.name)
        if tool is not None and tool.child is not None:
            result = child_result(self, call, tool.child, result)
            if result is None:
                return None
        if self.has_outside_hook(tool, "tool_end") and f"{call.id}-end" not in self.results:
            return None
        return result

    def has_outside_hook(self, tool: ToolSpec | None, point: str) -> bool:
        """Does a hook want to see a call that the tool host does not make itself?"""
        outside = tool is not None and (tool.sandbox or tool.child is not None)
        return outside and point in self.agent.hooks  # an agent has the tool, so it exists

    def open_tool_calls(self) -> list[ToolCall]:
        """Tool calls of the last answer that have no outcome yet."""
        calls = self._sorted
        seen = (len(self.results), len(self.decided), self.reviewed)
        if calls.seen != seen or calls.open_calls is calls.tool_calls:
            # a result is final, but a decision may overrule one that held for all calls of a tool
            before = calls.open_calls if calls.seen[1:] == seen[1:] else calls.tool_calls
            calls.open_calls = [call for call in before if self.settled(call) is None]
            calls.seen = seen
        return calls.open_calls

    def look_again(self) -> None:
        """Discard what was derived from results, because results were removed."""
        self._last_sorted = _Sorted(None, None, set())

    def open_children(self) -> list[CallRequested]:
        """Child runs that were started and have not ended."""
        return [
            it
            for it in self.asked.values()
            # a forged call may name no run at all
            if it.traits.is_child_run and is_token(it.child) and it.call not in self.results
        ]

    # --- for the fold --------------------------------------------------------------------------

    def _frees_first_turn(self, event: CallFinished, asked: CallRequested) -> bool:
        """Does this result of guardrails make the first turn due? For parallel guardrails, only
        their first message does, if their tool host sends an early one; a later message must not
        trigger the turn twice.
        """
        if asked.name != "parallel":
            return True
        other = early_of(event.call) or looking_at(event.call)
        return self.agent.guards_announced and other not in self.results

    def _child_asks(self, waiting: ChildWaiting) -> None:
        """Record the approvals of a waiting child. Those decided here are no longer open, even if
        the child does not know yet: the harness passes the decision on.
        """
        answered = {(it.run, it.call) for it in self.decided_below.values()}
        left = [
            it
            for it in waiting.approvals
            if not {(it.run, it.call), (it.run, it.call_id)} & answered
        ]
        if len(left) < len(waiting.approvals):
            self.waiting = None
        self.child_waits[waiting.call] = msgspec.structs.replace(waiting, approvals=left)

    def _ask_again(self) -> None:
        """Forget requests without results: their receivers may be gone or have given up. They are
        sent again.
        """
        self.results = without_early(self.results)
        self.asked = {call: it for call, it in self.asked.items() if call in self.results}
