"""What a run forgets when it is retried: the failed step, and nothing else. Pure.

The event ``run.reopened`` names the calls whose outcomes no longer count. This module puts the
state back to the point before these calls, or the model call, were requested. A call that is
requested again is another attempt: outcomes of earlier attempts are outdated.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Raw
from sandstream_bus.wire.messages import (
    CallFinished,
    CallRequested,
    Prepared,
    RunReopened,
    TokenUsage,
)

if TYPE_CHECKING:
    from sandstream_actors.run.state import RunState


class _Before(NamedTuple):
    """A state before the model's last answer."""

    items: int
    said: int
    response_id: str | None
    server_knows: int
    agent_is_new: bool
    had_used_tools: bool


class _Counted(NamedTuple):
    """The usage of a child run when its parent requested it again: it is already counted."""

    usage: TokenUsage = TokenUsage()
    turns: int = 0
    tool_calls: int = 0


@dataclass
class Past:
    """State that a run keeps only for a possible retry."""

    retries: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    """How often the outcomes of calls were forgotten."""
    attempt: int = 0
    """Of a child run: which attempt of its parent's call it is."""
    counted: _Counted = _Counted()
    late: set[str] = field(default_factory=set)
    """Calls whose outcomes came after the run's end."""
    _refused: tuple[list[Raw], int] | None = None
    """The items as they were before an output guardrail refused some of them, and how many the
    user's session had by then.
    """
    dropped: list[tuple[int, list[Raw]]] = field(default_factory=list)
    """Answers that count no longer, with their places in all that was said. A conversation on the
    bus has heard them.
    """
    _heard: tuple[int, list[Raw]] = field(default_factory=lambda: (0, []))
    """What a conversation on the bus has in place of that many of the said items."""
    _told: dict[str, Raw] = field(default_factory=dict)
    """The outcomes of the last answer's calls that are among the items."""
    _before: _Before | None = None

    def answered(self, state: RunState, seen: int) -> None:
        """Prepare for the model's next answer. The model has ``seen`` items up to that event."""
        self._told = {}
        staged = sum(len(items) for place, items in state.staged if place <= seen)
        self._before = _Before(
            items=len(state.items) + staged,
            said=len(state.said) + staged,
            response_id=state.response_id,
            server_knows=state.server_knows,
            agent_is_new=state.agent_is_new,
            had_used_tools=state.agent_name in state.agents_with_tool_use,
        )

    def tell(self, state: RunState, call: str, outcome: Raw) -> None:
        """Add the outcome of a call to the items, unless it was added before."""
        if call not in self._told:
            self._told[call] = outcome
            state.items.append(outcome)

    def untell(self, state: RunState, call: str) -> None:
        """Remove a call's outcome, because it no longer counts: the model reads the next one."""
        told = self._told.pop(call, None)
        state.items = [it for it in state.items if it is not told]

    def refuse(self, state: RunState) -> None:
        """Keep the items before an output guardrail removes some of them."""
        self._refused = (state.items, state.session_has)

    def unrefuse(self, state: RunState) -> None:
        """Restore the items, because the guardrail runs again."""
        if self._refused is None or self._before is None:
            return
        had, said = state.session_has, state.said
        heard = self.all_said(said)
        state.items, had_before = self._refused
        self._refused = None
        if len(said) > self._before.said:
            # the conversation has the call, with the text that replaced its outcome
            self._heard = (len(self.all_said(state.said)), heard)
            if had != had_before and had > self._before.said:
                state.session_has = len(state.said)

    def note_late(self, state: RunState, call: str) -> None:
        """Record a call whose outcome arrived after the run's end."""
        if state.done is not None:
            self.late.add(call)

    def is_outdated(self, event: CallFinished) -> bool:
        """Is it an end of a child run from before the child's retry? For other calls, the requests
        distinguish the attempts.
        """
        return event.traits.is_child_run and event.attempt < self.attempts[event.call]

    def all_said(self, said: list[Raw]) -> list[Raw]:
        """All items in order, including answers that no longer count."""
        found = list(said)
        for place, items in self.dropped:
            found[place:place] = items
        upto, heard = self._heard
        return heard + found[upto:]

    def drop_answer(self, state: RunState) -> None:
        before = self._before
        if before is None:
            return
        place = before.said + sum(len(items) for _, items in self.dropped)
        self.dropped.append((place, state.items[before.items :]))
        state.items = state.items[: before.items]
        state.turn -= 1
        state.forget_turn()
        state.answer = None
        state.response_id = before.response_id
        state.server_knows = before.server_knows
        state.agent_is_new = before.agent_is_new
        if not before.had_used_tools:
            state.agents_with_tool_use.discard(state.agent_name)
        self._before = None


def reopen(state: RunState, event: RunReopened) -> bool:
    """Reopen the run. False: it is active, and no request need be repeated."""
    was_under_way = state.done is None and state.cancel is None
    had_ended = state.done is not None
    state.done = None
    state.cancel = None
    state.reopens += 1
    if event.attempt:
        state.past.attempt = event.attempt
        if had_ended:
            used = (state.usage, state.tree_turns, state.tool_calls_made)
            state.past.counted = _Counted(*used)
    if event.retry and was_under_way:  # a child run whose parent had ended and continued quickly
        return False
    if event.retry:
        _forget_failure(state, event)
    return True


def _forget_failure(state: RunState, event: RunReopened) -> None:
    """Put the state back to before the step that failed."""
    past = state.past
    past.retries += 1
    past.late = set()
    for call in event.forgets:
        _forget(state, call)
    state.look_again()
    if event.drops_answer:
        past.drop_answer(state)
    # the process that ended the run has cancelled these: their ends must not count as outcomes
    open_calls = [it.call for it in state.open_children()]
    past.attempts.update(call for call in open_calls if call not in event.forgets)
    state.deferred = None
    state.waited_s = 0.0
    state.wait_attempts = 0
    state.waiting = None
    _set_limits(state, event)
    for name, _, _ in state.to_close():  # the end of the run has closed them, or is about to
        state.sandboxes.pop(name)
        state.closings += 1
    session = state.options.session if state.started is not None else None
    if session is not None and session.kind == "bus":
        state.has_conversation = False  # it queues again, as other runs may have continued
        if state.turn == 0:
            state.history = None  # the history contains none of its items


def _forget(state: RunState, call: str) -> None:
    result = state.results.pop(call, None)
    state.past.attempts[call] += 1
    state.past.untell(state, call)
    if result is not None and result.traits.checks_output:
        state.past.unrefuse(state)
    if result is not None and result.traits.result is Prepared:
        state.prepared = None
    decision = state.decided.get(call)
    if decision is not None and decision.expired and not decision.approve:
        del state.decided[call]  # the approval had expired; a person's decision stays valid
        state.requested.pop(call, None)


def _set_limits(state: RunState, event: RunReopened) -> None:
    changed: dict[str, object] = {}
    if event.max_turns is not msgspec.UNSET:
        changed["max_turns"] = event.max_turns
    if event.budget is not None:
        changed["budget"] = event.budget
    state.change_options(**changed)


def with_attempts(state: RunState, calls: list[CallRequested]) -> list[CallRequested]:
    """The calls, each with the number of its forgotten outcomes."""
    attempts = state.past.attempts
    return [
        msgspec.structs.replace(it, attempt=attempts[it.call]) if attempts[it.call] else it
        for it in calls
    ]


def attempt_of(call: CallRequested) -> str:
    """The name of this attempt of a call, for hosts that must not start it twice."""
    return f"{call.call}-a{call.attempt}" if call.attempt else call.call


def is_answered(state: RunState, call: CallRequested) -> bool:
    """Does the call have a result, or is it an outdated attempt?"""
    return call.call in state.results or call.attempt < state.past.attempts[call.call]
