"""Evidence about a tree of runs, collected from outside, and its judgement: every run once, every
effect as often as promised, every call with one outcome, every conversation in order.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from chaos.composition.fleet import CompositionFleet
from chaos.composition.scenarios import PLANS, TALK, Plan
from chaos.evidence import Effect, Kills, Outcome, is_hint, time_ns_of
from sandstream_actors.run.call_results import listening_to, looking_at
from sandstream_actors.run.places import past_events
from sandstream_actors.run.state import RunState
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    CallFinished,
    CallRequested,
    ConversationOpened,
    ModelAnswered,
    RunDone,
    RunMoved,
    RunRestored,
    RunStarted,
    TurnRequested,
)
from sandstream_bus.wire.subjects import RunId

from sandstream.testing import Request, ScriptedModel

_NEVER_NS = 2**63
_SERVES = re.compile(r"^You serve (\S+)\.$")
_WAKES = (
    RunStarted
    | RunRestored
    | RunMoved
    | CallFinished
    | TurnRequested
    | ApprovalDecided
    | ConversationOpened
)
Requests = dict[tuple[str, str], list[Request]]
"""The model's requests, by the key of the tree and the label of the script."""


def requests_by_run(model: ScriptedModel) -> Requests:
    found: Requests = {}
    for request in model.journal:
        served = _SERVES.match(str(request.body.get("instructions", "")))
        key = served.group(1) if served else "?"
        found.setdefault((key, request.conversation or "?"), []).append(request)
    return found


class Source(Protocol):
    """Provides the log and the ledger of runs."""

    async def events(self, key: str) -> list[LogEvent]: ...

    def effects(self, key: str) -> list[Effect]: ...


async def judge_tree(
    outcome: Outcome,
    fleet: CompositionFleet,
    requests: Requests,
    root: str,
    kills: Kills,
    *,
    plan: Plan,
) -> None:
    """Judge a completed run and all its child runs; nothing may be lost or parked."""
    for run in await judge_runs_of(outcome, fleet, requests, root, kills, plan=plan):
        outcome.problems.extend(await fleet.lost(run))
    outcome.problems.extend(await parked_of(fleet, root))


async def judge_runs_of(
    outcome: Outcome,
    source: Source,
    requests: Requests,
    root: str,
    kills: Kills,
    *,
    plan: Plan,
) -> list[str]:
    """Judge a completed run and all its child runs; return the runs."""
    effects = source.effects(root)
    todo = [(root, plan, root)]
    seen: dict[str, str] = {}
    for run, wanted, where in todo:
        if seen.setdefault(run, where) != where:
            outcome.problems.append(f"{where}: the same run as {seen[run]}")
        events = unfolded(await source.events(run))
        outcome.runs += 1
        problems = Outcome("")
        judge_log(problems, wanted, events)
        judge_effects(problems, events, effects, kills)
        asked = requests.get((root, wanted.label), [])
        judge_model(problems, events, asked, kills, turns=len(wanted.turns) + 1)
        _add(outcome, problems, where)
        kinds = [one.event for one in events]
        children = [it for it in kinds if isinstance(it, CallRequested) and it.kind == "child"]
        for child, arguments in {it.child: it.arguments for it in children}.items():
            label = json.loads(arguments)["input"].strip("[]")
            todo.append((child, PLANS[label], f"{where} > {label}"))
    return list(seen)


def unfolded(events: Sequence[LogEvent]) -> list[LogEvent]:
    """The events, with a restored state replaced by the events that it contains."""
    found: list[LogEvent] = []
    for one in events:
        if isinstance(one.event, RunRestored):
            past = past_events(one.event)
            found += [one._replace(subject=subject, event=event) for subject, event in past]
        found.append(one)
    return found


def judge_log(outcome: Outcome, plan: Plan, events: Sequence[LogEvent]) -> None:
    """One start, one answer per turn, one request and one result per call, one correct end."""
    kinds = [event.event for event in events]
    starts = sum(isinstance(event, RunStarted) for event in kinds)
    outcome.check(starts == 1, f"{starts} starts")
    dones = [event for event in kinds if isinstance(event, RunDone)]
    outcome.check(len(dones) == 1, f"{len(dones)} ends")
    for done in dones[:1]:
        end = kinds.index(done)
        # a second person may say the same when the run has ended: nothing comes of it
        said_again = [it for it in kinds[:end] if isinstance(it, ApprovalDecided)]
        later = [it for it in kinds[end + 1 :] if not is_hint(it) and it not in said_again]
        outcome.check(not later, f"events after its end: {later}")
        said = msgspec.json.decode(done.output) if done.output else done.error
        ok = done.status == "completed" and said == plan.output
        outcome.check(ok, f"ended as {done.status}: {said}")
    turns = [event.turn for event in kinds if isinstance(event, ModelAnswered)]
    wanted = list(range(1, len(plan.turns) + 2))
    outcome.check(turns == wanted, f"turns {turns}, not {wanted}")
    outcome.model_turns += len(wanted)
    asked = Counter(event.call for event in kinds if isinstance(event, CallRequested))
    ended = Counter(event.call for event in kinds if isinstance(event, CallFinished))
    # what was open when another process took the run over is asked for anew, there
    most = 1 + sum(isinstance(event, RunMoved | RunRestored) for event in kinds)
    outcome.check(max(asked.values(), default=0) <= most, f"asked too often: {asked}")
    watches = {it.call for it in kinds if isinstance(it, CallRequested) and it.kind == "watch"}
    guards = {it for it in asked if it == "t1-guards"}
    answers = {*asked, *map(listening_to, watches), *map(looking_at, guards)}
    outcome.check(answers == set(ended), f"asked {asked}, answered {ended}")
    outcome.check(set(ended.values()) <= {1}, f"answered too often: {ended}")
    names = {
        event.call: (event.turn, event.name)
        for event in kinds
        if isinstance(event, CallRequested) and event.kind in ("tool", "child")
    }.values()
    right = sorted(names) == sorted(plan.wanted_calls)
    outcome.check(right, f"calls {list(names)}, not {plan.wanted_calls}")


def judge_effects(
    outcome: Outcome, events: Sequence[LogEvent], effects: Sequence[Effect], kills: Kills
) -> None:
    """A tool ran once; more often only because of a kill meanwhile, and only if it may be
    repeated.
    """
    ended = {e.event.call: e for e in events if isinstance(e.event, CallFinished)}
    counted: set[str] = set()
    for one in events:
        call = one.event
        if not isinstance(call, CallRequested) or call.kind != "tool" or call.call in counted:
            continue
        counted.add(call.call)
        outcome.tool_calls += 1
        ran = sum(effect.call == call.call_id for effect in effects)
        outcome.effects += ran
        end = ended.get(call.call)
        result = end.event if end else None
        error = result.error if isinstance(result, CallFinished) else None
        unknown = error is not None and error.code == "outcome_unknown"
        outcome.unknown_outcomes += unknown
        where = f"{call.name} ({call.call})"
        if call.at_most_once:
            outcome.check(ran <= 1, f"{where} is at most once and ran {ran} times")
            outcome.check(ran == 1 or unknown, f"{where} did not run, and nobody was told")
        else:
            excused = kills.between(time_ns_of(one), time_ns_of(end) if end else _NEVER_NS)
            ok = 1 <= ran <= 1 + excused
            outcome.check(ok, f"{where} ran {ran} times, with {excused} kills meanwhile")
            outcome.check(not unknown, f"{where} may run again and was reported as unknown")
            outcome.repeated_effects += max(0, ran - 1)


def judge_model(
    outcome: Outcome,
    events: Sequence[LogEvent],
    requests: Sequence[Request],
    kills: Kills,
    *,
    turns: int,
    first: int = 0,
) -> None:
    """The model was asked once per turn, plus once per kill during the turn. ``first``: how many
    answers the conversation had before.
    """
    asked = Counter(request.position for request in requests)
    outcome.model_requests += asked.total()
    bad = [request.problem for request in requests if request.status != 200]
    outcome.check(not bad, f"the model refused: {bad}")
    wanted = set(range(first, first + turns))
    outcome.check(set(asked) == wanted, f"asked for the answers {set(asked)}, not {wanted}")
    for position in wanted:
        excused = kills.between(*_turn_ns(events, position - first + 1))
        ok = 1 <= asked[position] <= 1 + excused
        said = f"turn {position - first + 1} was asked for {asked[position]} times"
        outcome.check(ok, f"{said}, with {excused} kills meanwhile")


def _turn_ns(events: Sequence[LogEvent], turn: int) -> tuple[int, int]:
    """The time from the event that made the turn due to its answer."""
    due_ns = 0
    for event in events:
        if isinstance(event.event, ModelAnswered) and event.event.turn == turn:
            return due_ns, time_ns_of(event)
        if isinstance(event.event, _WAKES):
            due_ns = time_ns_of(event)
    return due_ns, _NEVER_NS


async def judge_talk(
    outcome: Outcome,
    fleet: CompositionFleet,
    requests: Requests,
    session: str,
    keys: Sequence[str],
    kills: Kills,
) -> None:
    """The history contains everything that each run said, once, run after run."""
    history = await fleet.said_in(session)
    spoken = [_key_of(item) for item in history if item.get("role") == "user"]
    outcome.check(sorted(spoken) == sorted(keys), f"{session}: who spoke: {spoken}, not {keys}")
    expected: list[Any] = []
    for place, key in enumerate(spoken):
        events = await fleet.events(key)
        outcome.runs += 1
        problems = Outcome("")
        judge_log(problems, TALK, events)
        judge_effects(problems, events, fleet.effects(key), kills)
        asked = requests.get((key, TALK.label), [])
        turns = len(TALK.turns) + 1
        judge_model(problems, events, asked, kills, turns=turns, first=place * turns)
        _add(outcome, problems, key)
        outcome.problems.extend(await fleet.lost(key))
        outcome.problems.extend(await parked_of(fleet, key))
        state = RunState.of(RunId(key), events)
        said = [msgspec.json.decode(item) for item in [*state.own_input, *state.said]]
        outcome.check(len(said) == 6, f"{key}: said {len(said)} items: {said}")
        expected += said
    outcome.check(history == expected, f"{session}: the history is not what the runs said")
    conversation = await fleet.client.bus.conversations.read(session)
    outcome.check(not conversation.is_busy, f"{session}: still held: {conversation.waiting}")


def _key_of(item: dict[str, Any]) -> str:
    content = item["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    return str(text).split()[-1]


async def judge_cancelled(
    outcome: Outcome, fleet: CompositionFleet, root: str, *, children: int | None = None
) -> None:
    """A cancelled run and all its child runs have ended once, as cancelled."""
    runs = await fleet.tree(root)
    ok = children is None or len(runs) == children + 1
    outcome.check(ok, f"{root}: {len(runs) - 1} children")
    for run in runs:
        outcome.runs += 1
        events = [it.event for it in await fleet.events(run)]
        starts = sum(isinstance(event, RunStarted) for event in events)
        dones = [event for event in events if isinstance(event, RunDone)]
        if run != root and not starts:
            continue  # cancelled before it began: nothing of it ever happens
        ok = starts == 1 and [done.status for done in dones] == ["cancelled"]
        outcome.check(ok, f"{run}: {starts} starts, ended as {[it.status for it in dones]}")


async def parked_of(fleet: CompositionFleet, key: str) -> list[str]:
    entries = [it for it in await fleet.client.parked() if f".{key}" in it.parked.subject]
    return [f"{key}: a message was parked: {it.parked.reason}" for it in entries]


def _add(outcome: Outcome, part: Outcome, where: str) -> None:
    for name in (
        "tool_calls",
        "effects",
        "repeated_effects",
        "unknown_outcomes",
        "model_turns",
        "model_requests",
    ):
        setattr(outcome, name, getattr(outcome, name) + getattr(part, name))
    outcome.problems.extend(f"{where}: {problem}" for problem in part.problems)
