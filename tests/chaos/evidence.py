"""Evidence about a run, collected from outside, and its judgement: its log, the ledger that the
tools wrote, the model's journal. Nothing here trusts a counter of the system under test.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
from chaos.scenarios import TOTAL, Scenario
from sandstream_actors.tool_host.actor import UNKNOWN_OUTCOME
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import (
    CallFinished,
    CallRequested,
    CallStarted,
    ModelAnswered,
    ModelDeferred,
    RunDone,
    RunEvent,
    RunStarted,
    TurnRequested,
)

from sandstream.testing import Request
from sandstream.testing.request_reader import first_user_text

LIMIT_S = 8.0
"""The promise: a run continues within this time after the kill of the actor that held it."""


_SLACK_NS = 200_000_000
_NEVER_NS = 2**63


class Effect(NamedTuple):
    """A line of the ledger: a tool ran."""

    key: str
    tool: str
    call: str
    pid: int


def read_ledger(path: Path) -> list[Effect]:
    if not path.exists():
        return []
    return [Effect(**json.loads(line)) for line in path.read_text().splitlines()]


def requests_of(journal: Sequence[Request], key: str) -> list[Request]:
    """The model requests of one run, identified by its key in the first message."""
    return [one for one in journal if first_user_text(one.body).split()[-1:] == [key]]


@dataclass
class Outcome:
    """One cell of the matrix, or one part of a random test."""

    name: str
    scenario: str = ""
    kills: int = 0
    runs: int = 0
    tool_calls: int = 0
    effects: int = 0
    repeated_effects: int = 0
    unknown_outcomes: int = 0
    model_turns: int = 0
    model_requests: int = 0
    continued_s: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def check(self, holds: object, problem: str) -> None:
        if not holds:
            self.problems.append(problem)


class RunEvidence(NamedTuple):
    """Everything that was found about one run."""

    key: str
    scenario: Scenario
    events: Sequence[LogEvent]
    effects: Sequence[Effect]
    requests: Sequence[Request]


class Kills(NamedTuple):
    """When processes were killed. Only a kill during the work excuses a repetition."""

    at_ns: tuple[int, ...] = ()
    pauses_ns: tuple[tuple[int, int], ...] = ()
    """Periods in which heartbeats could not reach the server, so that work was redelivered."""

    def between(self, begin_ns: int, end_ns: int) -> int:
        """The number of kills and pauses in this period."""
        since, until = begin_ns - _SLACK_NS, end_ns + _SLACK_NS
        kills = sum(since <= at <= until for at in self.at_ns)
        return kills + sum(begin <= until and since <= end for begin, end in self.pauses_ns)


NO_KILLS = Kills()


def judge(outcome: Outcome, run: RunEvidence, kills: Kills) -> None:
    """Add the run's counts and problems to the outcome."""
    outcome.runs += 1
    _judge_log(outcome, run)
    _judge_calls(outcome, run, kills)
    _judge_model(outcome, run, kills)


def _judge_log(outcome: Outcome, run: RunEvidence) -> None:
    """One start, one answer per turn, one request and one result per call, one end, which is
    last.
    """
    key = run.key
    kinds = [event.event for event in run.events]
    outcome.check(kinds and isinstance(kinds[0], RunStarted), f"{key}: does not begin with a start")
    starts = sum(isinstance(event, RunStarted) for event in kinds)
    outcome.check(starts == 1, f"{key}: {starts} starts")
    dones = [event for event in kinds if isinstance(event, RunDone)]
    outcome.check(len(dones) == 1, f"{key}: {len(dones)} ends")
    if dones:
        later = [event for event in kinds[kinds.index(dones[0]) + 1 :] if not is_hint(event)]
        outcome.check(not later, f"{key}: events after its end: {later}")
        right = dones[0].status == "completed" and bool(dones[0].output)
        said = msgspec.json.decode(dones[0].output) if right else dones[0].error
        outcome.check(said == {"total": TOTAL}, f"{key}: ended as {dones[0].status}: {said}")
    turns = [event.turn for event in kinds if isinstance(event, ModelAnswered)]
    wanted = list(range(1, len(run.scenario.turns) + 2))
    outcome.check(turns == wanted, f"{key}: turns {turns}, not {wanted}")
    outcome.model_turns += len(wanted)
    asked = Counter(event.call for event in kinds if isinstance(event, CallRequested))
    ended = Counter(event.call for event in kinds if isinstance(event, CallFinished))
    # what was open when another process took the run over is asked for anew, there
    takeovers = sum(event.__struct_config__.tag == "run.moved" for event in kinds)
    most = 1 + takeovers
    outcome.check(max(asked.values(), default=0) <= most, f"{key}: asked too often: {asked}")
    outcome.check(max(ended.values(), default=0) <= most, f"{key}: answered too often: {ended}")
    outcome.check(set(asked) == set(ended), f"{key}: asked {asked}, answered {ended}")


def is_hint(event: RunEvent) -> bool:
    """Whether it is a timer that may fire after its turn was taken; the receiver notices that."""
    return isinstance(event, TurnRequested) and event.reason == "waited"


def _judge_calls(outcome: Outcome, run: RunEvidence, kills: Kills) -> None:
    asked_ns: dict[str, int] = {}
    for one in run.events:
        if isinstance(one.event, CallRequested):
            asked_ns.setdefault(one.event.call, time_ns_of(one))
    ended_ns = {e.event.call: time_ns_of(e) for e in run.events if type(e.event) is CallFinished}
    kinds = [event.event for event in run.events]
    results = {event.call: event for event in kinds if isinstance(event, CallFinished)}
    starts = Counter(event.call for event in kinds if isinstance(event, CallStarted))
    asked = {event.call: event for event in kinds if isinstance(event, CallRequested)}
    tools = [call for call in asked.values() if call.kind == "tool"]
    names = [(call.turn, call.name) for call in tools]
    wanted = [(n, name) for n, calls in enumerate(run.scenario.turns, 1) for name, _ in calls]
    outcome.check(sorted(names) == sorted(wanted), f"{run.key}: calls {names}, not {wanted}")
    for call in tools:
        outcome.tool_calls += 1
        ran = sum(effect.call == call.call_id for effect in run.effects)
        outcome.effects += ran
        where = f"{run.key}: {call.name} ({call.call})"
        result = results.get(call.call)
        unknown = bool(result and result.error and result.error.code == "outcome_unknown")
        if call.at_most_once:
            outcome.check(ran <= 1, f"{where} is at most once and ran {ran} times")
            outcome.check(ran == 1 or unknown, f"{where} did not run, and nobody was told")
            outcome.check(starts[call.call] == 1, f"{where} was claimed {starts[call.call]} times")
        else:
            excused = kills.between(asked_ns[call.call], ended_ns.get(call.call, _NEVER_NS))
            ok = 1 <= ran <= 1 + excused
            outcome.check(ok, f"{where} ran {ran} times, with {excused} kills meanwhile")
            outcome.check(not unknown, f"{where} may run again and was reported as unknown")
            outcome.repeated_effects += max(0, ran - 1)
        if unknown:
            outcome.unknown_outcomes += 1
            told = any(UNKNOWN_OUTCOME in request.text for request in run.requests)
            outcome.check(told, f"{where}: the model was not told that its outcome is unknown")


def _judge_model(outcome: Outcome, run: RunEvidence, kills: Kills) -> None:
    asked = Counter(request.position for request in run.requests if request.status == 200)
    refused = Counter(request.position for request in run.requests if request.status != 200)
    outcome.model_requests += asked.total()
    for position in range(len(run.scenario.turns) + 1):
        times = asked[position]
        excused = kills.between(*_turn_ns(run, position + 1))
        where = f"{run.key}: turn {position + 1}"
        ok = 1 <= times <= 1 + excused
        outcome.check(ok, f"{where} was asked for {times} times, with {excused} kills meanwhile")
    limited = [run.scenario.limited_turn - 1] if run.scenario.limited_turn else []
    ok = list(refused) == limited and all(
        times <= 1 + len(kills.at_ns) for times in refused.values()
    )
    outcome.check(ok, f"{run.key}: refused requests {refused}, not one of {limited}")


def _turn_ns(run: RunEvidence, turn: int) -> tuple[int, int]:
    """The time from the event that made the turn due to its answer."""
    due_ns = 0
    for event in run.events:
        if isinstance(event.event, ModelAnswered) and event.event.turn == turn:
            return due_ns, time_ns_of(event)
        if isinstance(event.event, CallFinished | RunStarted):
            due_ns = time_ns_of(event)
    return due_ns, _NEVER_NS


def time_ns_of(event: LogEvent) -> int:
    """When the server stored an event. RFC 3339 with nanoseconds."""
    whole, _, fraction = event.stored.time.rstrip("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole + "+00:00").timestamp())
    return seconds * 1_000_000_000 + int(fraction.ljust(9, "0")[:9] or 0)


def seconds_to_continue(
    events: Sequence[LogEvent], killed_ns: int, armed_ns: Sequence[int] = ()
) -> float | None:
    """The time from the kill to the run's next event. ``None`` if no work was due: the run had not
    started, was over, or waited for an armed timer. ``armed_ns``: when its timers were armed, which
    counts as an event although it is not below the run's subject.
    """
    times = [(time_ns_of(event), event.event) for event in events]
    before = [event for at, event in times if at <= killed_ns]
    after = sorted(
        [at for at, _ in times if at > killed_ns] + [a for a in armed_ns if a > killed_ns]
    )
    if not before or isinstance(before[-1], RunDone) or not after:
        return None
    deferred = isinstance(before[-1], ModelDeferred)
    if deferred and (not armed_ns or any(at <= killed_ns for at in armed_ns)):
        return None
    return (after[0] - killed_ns) / 1e9
