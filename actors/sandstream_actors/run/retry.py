"""What a run forgets when it is retried: the step that failed, and nothing else. Pure.

The event ``run.reopened`` names the calls whose outcomes count no longer; here the state is put
back to where these calls, or the model, were not asked yet. A call that is asked again is another
attempt: whatever comes of an earlier one is outdated.
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
    """What a child run had used when its parent asked for it again: that is counted already."""

    usage: TokenUsage = TokenUsage()
    turns: int = 0
    tool_calls: int = 0


@dataclass
class Past:
    """What a run remembers only for the case that it is retried."""

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
    """What a conversation on the bus has instead of so much of all that was said."""
    _told: dict[str, Raw] = field(default_factory=dict)
    """The outcomes of the last answer's calls that are among the items."""
    _before: _Before | None = None

    def answered(self, state: RunState, seen: int) -> None:
        """The model's next answer is about to be taken in. The model has ``seen`` what was said up
        to there.
        """
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
        """The outcome of a call joins the items, unless it has done so before."""
        if call not in self._told:
            self._told[call] = outcome
            state.items.append(outcome)

    def untell(self, state: RunState, call: str) -> None:
        """The outcome that the model would have read does not count: it reads the next one."""
        told = self._told.pop(call, None)
        state.items = [it for it in state.items if it is not told]

    def refuse(self, state: RunState) -> None:
        """An output guardrail is about to take away some of the items."""
        self._refused = (state.items, state.session_has)

    def unrefuse(self, state: RunState) -> None:
        """The guardrail looks again, at all of the items."""
        if self._refused is None or self._before is None:
            return
        had, said = state.session_has, state.said
        heard = self.all_said(said)
        state.items, had_before = self._refused
        self._refused = None
        if len(said) > self._before.said:
            # the conversation has the call with the text that was put in place of its outcome
            self._heard = (len(self.all_said(state.said)), heard)
            if had != had_before and had > self._before.said:
                state.session_has = len(state.said)

    def note_late(self, state: RunState, call: str) -> None:
        """A call has its outcome."""
        if state.done is not None:
            self.late.add(call)

    def is_outdated(self, event: CallFinished) -> bool:
        """Is it the end of a child run that was asked to go on since? Whoever answers other calls
        need not know of attempts: theirs are told apart by the requests.
        """
        return event.traits.is_child_run and event.attempt < self.attempts[event.call]

    def all_said(self, said: list[Raw]) -> list[Raw]:
        """Everything that was said, in order, with the answers that count no longer."""
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
    """The run has not ended after all. False: it is at work, and nothing need be asked again."""
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
    if event.retry and was_under_way:  # a child run whose parent had ended and was quick to go on
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
    # whoever ended the run has cancelled these: their ends must not count as outcomes
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
        state.has_conversation = False  # it queues anew, as others may have gone on
        if state.turn == 0:
            state.history = None  # nothing that it has said is in there


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
        del state.decided[call]  # nobody had answered in time; what a person has said holds
        state.requested.pop(call, None)


def _set_limits(state: RunState, event: RunReopened) -> None:
    changed: dict[str, object] = {}
    if event.max_turns is not msgspec.UNSET:
        changed["max_turns"] = event.max_turns
    if event.budget is not None:
        changed["budget"] = event.budget
    state.change_options(**changed)


def with_attempts(state: RunState, calls: list[CallRequested]) -> list[CallRequested]:
    """The calls, each with how often its outcome was forgotten."""
    attempts = state.past.attempts
    return [
        msgspec.structs.replace(it, attempt=attempts[it.call]) if attempts[it.call] else it
        for it in calls
    ]


def attempt_of(call: CallRequested) -> str:
    """The name of this attempt of a call, for whoever must not begin it twice."""
    return f"{call.call}-a{call.attempt}" if call.attempt else call.call


def is_answered(state: RunState, call: CallRequested) -> bool:
    """Has the call a result, or is it an attempt that does not count any more?"""
    return call.call in state.results or call.attempt < state.past.attempts[call.call]
