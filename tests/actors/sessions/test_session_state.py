"""What requests do to a session, and what it does next: pure, in all orders."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from sandstream_actors.sessions.state import KnownAgent, follow, has_begun
from sandstream_actors.sessions.steps import Step, next_step, settled
from sandstream_bus.logs.sessions import StoredAsk
from sandstream_bus.wire.sessions import (
    MAX_QUEUED,
    MAX_REFUSED,
    MAX_SEEN,
    REQUEST_KINDS,
    ArchiveSession,
    ConfigureSession,
    CreateSession,
    DestroySession,
    EditMessage,
    ForkSession,
    InterruptSession,
    LeftoverSandbox,
    PauseSession,
    RemoveMessage,
    RenameSession,
    RewindSession,
    SendMessage,
    SessionDue,
    SessionRequest,
    SessionState,
    SwitchProvider,
    WakeSession,
)

AGENTS = {"smith": KnownAgent("local"), "talker": KnownAgent("")}
_NAMES = {kind: name for name, kind in REQUEST_KINDS.items()}
replace = msgspec.structs.replace


def ask(sequence: int, request: SessionRequest | None, why: str = "") -> StoredAsk:
    kind = _NAMES[type(request)] if request is not None else "send"
    return StoredAsk(sequence, kind, request, why, "alice", f"2026-01-01T00:00:{sequence}Z", "")


def told(*requests: SessionRequest, state: SessionState | None = None) -> SessionState:
    """The state after these requests."""
    start = state.through if state else 0
    asks = [ask(start + n, it) for n, it in enumerate(requests, 1)]
    found = follow(state, "alice=a", asks, AGENTS)
    assert found is not None
    return found


def working(*requests: SessionRequest) -> SessionState:
    """A session whose first turn is at work."""
    return settled(told(CreateSession(agent="smith", input="go"), *requests))


def idle(box: str = "open", **fields: Any) -> SessionState:
    """A session after its first turn."""
    state = replace(working(), active=None, turn=1, **fields)
    assert state.workspace is not None
    return replace(state, workspace=replace(state.workspace, box=box, tree="t1"))


def refusals(state: SessionState) -> list[tuple[int, str]]:
    return [(it.request, it.error.code) for it in state.refused]


def test_nothing_follows_from_nothing() -> None:
    assert follow(None, "a", [], AGENTS) is None


def test_a_session_begins_with_its_first_message() -> None:
    state = told(CreateSession(agent="smith", input="Write  a\nblog"))
    assert (state.title, state.life, state.through) == ("Write a blog", "open", 1)
    assert [(it.id, it.by, it.request) for it in state.queue] == [("m1", "alice", 1)]
    assert state.workspace is not None
    assert (state.workspace.provider, state.workspace.box) == ("local", "none")
    assert (state.created, state.changed) == ("2026-01-01T00:00:1Z",) * 2


def test_a_request_is_applied_once_and_in_order() -> None:
    state = told(CreateSession(agent="talker"), RenameSession(title="A"), RenameSession(title="B"))
    assert (state.title, state.through) == ("B", 3)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (SendMessage(input=""), "invalid"),
        (SendMessage(input="x" * 300_000), "too_big"),
        (EditMessage(id="x", input="y"), "not_waiting"),
        (RemoveMessage(id="x"), "not_waiting"),
        (InterruptSession(), "not_working"),
        (RenameSession(title=" "), "invalid"),
        (RewindSession(turn=1), "unknown_turn"),
        (RewindSession(turn=-1), "unknown_turn"),
        (SwitchProvider(provider=""), "invalid"),
        (SwitchProvider(provider="a b"), "invalid"),
        (ConfigureSession(idle_s=0), "invalid"),
        (ConfigureSession(idle_s=float("nan")), "invalid"),
        (CreateSession(agent="smith"), "exists"),
        (ForkSession(source="alice=b"), "exists"),
    ],
)
def test_a_refused_request_changes_nothing_else(request_: SessionRequest, code: str) -> None:
    before = told(CreateSession(agent="smith"))
    after = told(request_, state=before)
    assert refusals(after) == [(2, f"session.{code}")]
    assert replace(after, refused=[], through=1) == before


def test_a_request_that_cannot_be_read_is_refused_with_the_reason() -> None:
    state = follow(told(CreateSession(agent="smith")), "alice=a", [ask(2, None, "bad")], AGENTS)
    assert state is not None
    assert (state.through, state.refused[0].error.message) == (2, "bad")


def test_a_session_that_could_not_begin_may_begin_later() -> None:
    state = told(SendMessage(input="x"), CreateSession(agent="stranger"))
    assert refusals(state) == [(1, "session.unknown"), (2, "session.unknown_agent")]
    assert not has_begun(state)
    assert (settled(state), next_step(state)) == (state, None)
    again = told(CreateSession(agent="smith"), state=state)
    assert (again.life, len(again.refused)) == ("open", 2)


def test_the_same_id_is_the_same_message_even_after_its_turn() -> None:
    state = working(SendMessage(input="b", id="two"))
    state = told(SendMessage(input="b", id="two"), SendMessage(input="x", id="m1"), state=state)
    assert state.active is not None
    assert [it.id for it in state.active.messages] == ["m1", "two"]
    assert (state.queue, state.refused) == ([], [])


def test_lists_stay_bounded() -> None:
    state = working()
    many = [SendMessage(input=f"{n}", id=f"i{n}") for n in range(MAX_QUEUED + MAX_REFUSED + 20)]
    state = told(*many, state=state)
    assert (len(state.queue), len(state.refused)) == (MAX_QUEUED, MAX_REFUSED)
    for turn in range(5):
        state = settled(replace(state, active=None))
        state = told(*(SendMessage(input="x", id=f"{turn}-{n}") for n in range(90)), state=state)
    assert len(state.seen) == MAX_SEEN


@pytest.mark.parametrize(("take", "counts"), [("all", [3]), ("one", [1, 1, 1])])
def test_turns_take_waiting_messages_as_configured(take: Any, counts: list[int]) -> None:
    sends = [SendMessage(input=word) for word in "bc"]
    state = settled(told(CreateSession(agent="smith", input="a", take=take), *sends))
    taken = []
    while state.active is not None:
        taken.append(len(state.active.messages))
        assert state.active.run == f"alice=a_t{len(taken)}-session"
        assert next_step(state) is Step.TURN
        state = settled(replace(state, active=None))
    assert taken == counts
    assert next_step(state) is Step.TIMER


def test_an_interrupt_is_for_one_turn() -> None:
    state = told(InterruptSession(turn=2), InterruptSession(reason="no", turn=1), state=working())
    assert [code for _, code in refusals(state)] == ["session.not_working"]
    assert state.active is not None
    assert (state.active.interrupted, state.active.reason) == (True, "no")
    again = told(InterruptSession(reason="other"), state=state)
    assert again.active == state.active


@pytest.mark.parametrize("request_", [PauseSession(), ArchiveSession()])
def test_a_paused_session_takes_no_turn_and_sleeps(request_: SessionRequest) -> None:
    state = working(SendMessage(input="b", id="b"))
    state = told(SendMessage(input="c"), request_, state=state)
    assert next_step(settled(state)) is Step.TURN
    state = settled(replace(state, active=None))
    assert state.workspace is not None
    assert (state.workspace.box, state.workspace.sleeps, len(state.queue)) == ("closing", 1, 1)
    assert next_step(state) is Step.SLEEP
    asleep = replace(state, workspace=replace(state.workspace, box="asleep"))
    assert (settled(asleep), next_step(asleep)) == (asleep, None)
    assert settled(told(SendMessage(input="d"), state=asleep)).active is not None
    woken = told(WakeSession(), state=asleep)
    assert (woken.life, woken.opening) == ("open", woken.through)


@pytest.mark.parametrize("idle_s", [60.0, None])
def test_a_paused_session_that_cannot_sleep_tries_again_later(idle_s: float | None) -> None:
    stuck = idle(life="paused", trouble="the disk is full", idle_s=idle_s)
    assert (settled(stuck), next_step(stuck)) == (stuck, Step.TIMER)
    again = settled(stuck, SessionDue(session="alice=a", begun=1))
    assert (next_step(again), next_step(idle("asleep", life="paused"))) == (Step.SLEEP, None)
    assert settled(told(WakeSession(), state=stuck)).trouble == ""


@pytest.mark.parametrize("life", ["open", "paused", "archived"])
@pytest.mark.parametrize("request_", [PauseSession(), ArchiveSession()])
def test_past_trouble_does_not_keep_a_resting_session_awake(
    request_: SessionRequest, life: str
) -> None:
    state = told(request_, state=idle(life=life, trouble="the files were not saved: disk full"))
    assert state.trouble == ""
    assert next_step(settled(state)) is Step.SLEEP


def test_a_timer_counts_only_if_nothing_has_happened_since() -> None:
    state = idle()
    assert settled(state, SessionDue(session="alice=a", begun=0)) == state
    due = SessionDue(session="alice=a", begun=1)
    slept = settled(state, due)
    assert slept.workspace is not None
    assert slept.workspace.box == "closing"
    for busy in (
        working(),
        replace(state, idle_s=None),
        told(SwitchProvider(provider="docker"), state=state),
        idle("asleep"),
        idle("none"),
    ):
        after = settled(busy, due)
        assert after.workspace == busy.workspace


def test_a_message_waits_for_a_workspace_that_falls_asleep() -> None:
    state = told(SendMessage(input="x"), state=idle("closing"))
    assert settled(state) == state
    assert next_step(state) is Step.SLEEP


def test_a_switch_waits_for_the_turn_and_the_next_turn_for_the_switch() -> None:
    state = told(SwitchProvider(provider="docker"), SendMessage(input="x"), state=working())
    assert (state.generations, next_step(settled(state))) == (2, Step.TURN)
    state = settled(replace(state, active=None))
    assert (state.active, next_step(state)) == (None, Step.SWITCH)
    busy = told(SwitchProvider(provider="e2b"), RewindSession(turn=0), state=state)
    assert [code for _, code in refusals(busy)] == ["session.busy"] * 2
    assert settled(replace(state, switch=None)).active is not None


def test_an_agent_without_a_sandbox_has_nothing_to_switch() -> None:
    state = told(CreateSession(agent="talker"), SwitchProvider(provider="local"))
    assert refusals(state) == [(2, "session.no_workspace")]
    woken = told(WakeSession(), state=state)
    assert (woken.opening, next_step(woken)) == (0, None)


def test_destroying_stops_everything_and_forgets_no_sandbox() -> None:
    moving = told(SwitchProvider(provider="docker"), SendMessage(input="x"), state=working())
    state = settled(told(DestroySession(), state=moving))
    assert (state.life, state.queue, state.switch) == ("destroying", [], None)
    assert state.active is not None
    assert state.active.interrupted
    assert state.leftovers == [
        LeftoverSandbox(sandbox="alice=a_w1", provider="local"),
        LeftoverSandbox(sandbox="alice=a_w2", provider="docker"),
    ]
    assert next_step(state) is Step.TURN
    state = settled(replace(state, active=None))
    assert next_step(state) is Step.DISCARD
    state = settled(replace(state, leftovers=[]))
    assert (state.life, next_step(state)) == ("destroyed", None)
    again = told(DestroySession(), SendMessage(input="x"), state=state)
    assert refusals(again) == [(again.through, "session.destroyed")]


def test_a_fork_takes_no_turn_before_it_is_done() -> None:
    state = settled(told(ForkSession(source="alice=b", input="go"), SendMessage(input="on")))
    assert (state.active, len(state.queue), next_step(state)) == (None, 2, Step.FORK)
    gone = settled(told(DestroySession(), state=state))
    assert (gone.fork, gone.life) == (None, "destroyed")
    again = told(CreateSession(agent="smith"), state=gone)
    assert refusals(again) == [(4, "session.exists")]


def test_only_own_sessions_can_be_forked() -> None:
    for source, code in (
        ("bob=b", "forbidden"),
        ("b", "forbidden"),
        ("alice=a", "invalid"),
        ("a.b", "invalid"),
    ):
        assert refusals(told(ForkSession(source=source))) == [(1, f"session.{code}")]


REQUESTS: list[SessionRequest] = [
    CreateSession(agent="smith", input="x"),
    ForkSession(source="alice=b"),
    SendMessage(input="a"),
    SendMessage(input="b", id="b"),
    EditMessage(id="b", input="c"),
    RemoveMessage(id="b"),
    InterruptSession(),
    PauseSession(),
    WakeSession(),
    ArchiveSession(),
    RenameSession(title="t"),
    SwitchProvider(provider="docker"),
    RewindSession(turn=0),
    ConfigureSession(take="one", idle_s=None),
    DestroySession(),
]


@pytest.mark.parametrize("seed", range(40))
def test_any_order_of_requests_and_ends_of_steps_keeps_the_rules(seed: int) -> None:
    """One turn at a time, no message twice, numbers only grow, nothing comes back to life."""
    rng = random.Random(seed)
    state: SessionState | None = None
    taken: list[int] = []
    for sequence in range(1, 120):
        before = state
        state = follow(state, "alice=a", [ask(sequence, rng.choice(REQUESTS))], AGENTS)
        assert state is not None
        state = settled(state)
        assert msgspec.json.decode(msgspec.json.encode(state), type=SessionState) == state
        assert state.through == sequence
        if before is not None and before.life == "destroyed" and has_begun(before):
            assert (state.life, state.active) == ("destroyed", None)
        if state.active is not None and (before is None or before.active != state.active):
            taken += [it.request for it in state.active.messages if not state.active.interrupted]
        state = _step_ends(state, rng)
    assert sorted(set(taken)) == sorted(taken)


def _step_ends(state: SessionState, rng: random.Random) -> SessionState:
    step = next_step(state)
    if step is None or rng.random() < 0.4:
        return state
    space = state.workspace
    match step:
        case Step.TURN:
            return replace(state, active=None)
        case Step.FORK:
            return replace(state, fork=None, agent="smith")
        case Step.DISCARD:
            return replace(state, leftovers=[])
        case Step.SLEEP:
            assert space is not None
            return replace(state, workspace=replace(space, box="asleep"))
        case Step.OPEN:
            assert space is not None
            return replace(state, opening=0, workspace=replace(space, box="open"))
        case Step.SWITCH:
            return replace(state, switch=None)
        case Step.REWIND:
            return replace(state, rewind=None)
        case Step.TIMER:
            return state
