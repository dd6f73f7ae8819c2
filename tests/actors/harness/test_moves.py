"""A run that moves to another process: what was asked of the old one is asked again. Pure."""

from __future__ import annotations

from sandstream_actors.harness.step_kinds import Ask, AskModel, RearmTimer, Wait
from sandstream_actors.harness.steps import next_step
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.messages import ErrorInfo, ModelDeferred, RunEvent, RunMoved, TurnRequested
from sandstream_bus.wire.subjects import RunId
from support.scripted_log import answer, asks, begin, calls, ends


def fold(*events: RunEvent | tuple[RunEvent, str]) -> RunState:
    """A state from events, some of them with the subject they came on."""
    state = RunState(RunId("r"))
    for sequence, item in enumerate(events, start=1):
        event, subject = item if isinstance(item, tuple) else (item, "")
        state.apply(sequence, event, subject)
    return state


MOVE = RunMoved(pool="p2", host="h2")
TWO_CALLS = answer(1, calls("f", "c0"), calls("f", "c1"))


def test_the_new_process_takes_the_turn_that_was_due() -> None:
    state = fold(begin(), MOVE)
    assert next_step(state) == AskModel(1)
    assert (state.trigger, state.pool, state.host) == (2, "p2", "h2")


def test_calls_without_a_result_are_asked_again_of_the_new_host() -> None:
    state = fold(begin("f"), TWO_CALLS, asks("t1-0"), asks("t1-1"), ends("t1-0"), MOVE)
    step = next_step(state)
    assert isinstance(step, Ask)
    assert [(call.call, call.reply_pool) for call in step.calls] == [("t1-1", "p2")]


def test_a_result_that_the_old_process_still_sends_does_not_count() -> None:
    log: list[RunEvent] = [
        begin("f"),
        answer(1, calls("f", "c0")),
        asks("t1-0"),
        MOVE,
        asks("t1-0"),
    ]
    late = (ends("t1-0", "of the old one"), "s.run.r.result.main")
    assert next_step(fold(*log, late)) == Wait()
    state = fold(*log, late, (ends("t1-0", "of the new one"), "s.run.r.result.p2"))
    assert next_step(state) == AskModel(2)
    assert state.trigger == 7
    assert b"of the new one" in bytes(state.items[-1])


def test_a_result_from_before_the_move_counts() -> None:
    early = (ends("t1-0"), "s.run.r.result.main")
    state = fold(begin("f"), answer(1, calls("f", "c0")), asks("t1-0"), early, MOVE)
    assert next_step(state) == AskModel(2)
    assert state.trigger == 5


def test_a_run_that_waits_for_a_timer_gets_one_that_wakes_the_new_process() -> None:
    error = ErrorInfo(code="model_http", message="slow down")
    wait = ModelDeferred(turn=1, attempt=1, delay_s=60, waited_s=60, error=error)
    state = fold(begin(), wait, MOVE)
    assert next_step(state) == RearmTimer()
    assert state.trigger == 3


def test_moving_again_asks_again() -> None:
    log: list[RunEvent] = [
        begin("f"),
        answer(1, calls("f", "c0")),
        asks("t1-0"),
        MOVE,
        asks("t1-0"),
    ]
    state = fold(*log, RunMoved(pool="p3", host="h3"))
    step = next_step(state)
    assert isinstance(step, Ask) and step.calls[0].reply_pool == "p3"
    assert state.moves == 2


def test_an_old_timer_that_fires_after_the_move_does_not_take_the_turn_away() -> None:
    error = ErrorInfo(code="model_http", message="slow down")
    wait = ModelDeferred(turn=1, attempt=1, delay_s=60, waited_s=60, error=error)
    due = TurnRequested(turn=1, agent="a")
    state = fold(begin(), wait, MOVE, (due, "s.run.r.turn.main"))
    assert (next_step(state), state.trigger) == (RearmTimer(), 3)
    state = fold(begin(), wait, MOVE, (due, "s.run.r.turn.main"), (due, "s.run.r.turn.p2"))
    assert (next_step(state), state.trigger) == (AskModel(1), 5)


def test_a_call_that_is_sent_to_the_old_host_after_the_move_is_asked_of_the_new_one() -> None:
    late = (asks("t1-0"), "s.run.r.call.h")
    state = fold(begin("f"), answer(1, calls("f", "c0")), MOVE, late)
    assert isinstance(next_step(state), Ask)
    state = fold(
        begin("f"), answer(1, calls("f", "c0")), MOVE, late, (asks("t1-0"), "s.run.r.call.h2")
    )
    assert next_step(state) == Wait()
