"""Attempts, takeovers and retries in the fold: what counts as which, once, and what was lost."""

from __future__ import annotations

import msgspec
import pytest
from sandstream_actors.run.takeovers import TakeoverCount
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_actors.tracing.span import Span, SpanEvent
from sandstream_bus.wire.attempts import attempt_of
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallStarted,
    ErrorInfo,
    ModelDeferred,
    RunDone,
    RunMoved,
    RunWaiting,
    TurnRequested,
)
from support.scripted_log import USAGE, answer, asks, begin, calls, ends, says
from support.tracing.timed_log import MS, T0_NS, TimedLog, takeovers_told

A, B, C = "host-a:1:aa", "host-b:2:bb", "host-c:3:cc"
DONE = RunDone(status="completed", agent="a", turns=1, usage=USAGE)


def took(call: str, ms: int) -> CallFinished:
    return msgspec.structs.replace(ends(call), duration_ms=ms)


def fold(log: TimedLog) -> tuple[RunTrace, dict[str, Span]]:
    trace = RunTrace.of(log.run, log.events)
    assert trace.facts().takeovers == TakeoverCount.of(log.events).count, "all views count alike"
    told = [it for span in trace.spans() for it in takeovers_in(span)]
    assert sum(map(takeovers_told, told)) == trace.facts().takeovers
    return trace, {span.operation: span for span in trace.spans()}


def takeovers_in(span: Span) -> list[SpanEvent]:
    return [it for it in span.events if it.name == semconv.TAKEOVER]


def test_a_harness_that_died_in_a_model_call_is_one_takeover_whatever_follows_from_it() -> None:
    log = TimedLog()
    log.add("start.main", begin("f"), at=0)
    told = answer(1, calls("f", "c"), duration_ms=40)
    log.add("model", told, at=5050, cause=1, deliveries=2, worker=B)
    log.add("call.h", asks("t1-0"), at=5051, cause=1, deliveries=2, worker=B)
    trace, spans = fold(log)
    assert (trace.facts().takeovers, trace.facts().retries) == (1, 0)
    chat = spans["chat"]
    assert chat.attributes[semconv.ATTEMPTS] == 2
    assert chat.attributes[semconv.TAKEOVERS] == 1
    assert chat.attributes[semconv.WORKER] == B
    assert chat.attributes[semconv.LOST] == pytest.approx(5.010)
    assert (chat.start_ns - T0_NS, chat.queued_ns) == (5010 * MS, 0)


def test_a_tool_call_that_nobody_reported_was_lost_from_when_it_was_there() -> None:
    log = TimedLog()
    log.add("start.main", begin("f"), at=0)
    log.add("model", answer(1, calls("f", "c"), duration_ms=9), at=10, cause=1, worker=A)
    log.add("call.h", asks("t1-0"), at=20, cause=1, worker=A)
    log.add("result.main", took("t1-0", 30), at=5100, cause=3, deliveries=2, worker=C)
    _, spans = fold(log)
    tool = spans["tool"]
    assert (tool.start_ns - T0_NS, tool.queued_ns) == (5070 * MS, 0)
    assert tool.attributes[semconv.LOST] == pytest.approx(5.05)
    assert tool.attributes[semconv.WORKER] == C
    assert spans["chat"].attributes[semconv.WORKER] == A
    assert semconv.ATTEMPTS not in spans["chat"].attributes
    process = next(it for it in RunTrace.of("r", log.events).spans() if takeovers_in(it))
    assert semconv.TAKEN_FROM not in takeovers_in(process)[0].attributes


def test_a_call_that_was_claimed_names_who_was_lost_and_when_it_began() -> None:
    log = TimedLog()
    log.add("start.main", begin("f"), at=0)
    log.add("call.h", asks("t1-0"), at=20, cause=1, worker=A)
    log.add("started.t1-0", CallStarted(call="t1-0", host=B), at=1000, cause=2, worker=B)
    log.add("result.main", took("t1-0", 0), at=6000, cause=2, deliveries=2, worker=C)
    trace, spans = fold(log)
    tool = spans["tool"]
    assert tool.queued_ns == 980 * MS, "it was in a queue until it was claimed"
    assert tool.attributes[semconv.LOST] == pytest.approx(5.0)
    process = next(it for it in trace.spans() if takeovers_in(it))
    (told,) = takeovers_in(process)
    assert (told.attributes[semconv.TAKEN_FROM], told.attributes[semconv.WORKER]) == (B, C)


def test_a_harness_that_died_after_its_decision_lost_only_what_came_then() -> None:
    log = TimedLog()
    log.add("start.main", begin("f"), at=0)
    log.add("model", answer(1, calls("f", "c"), duration_ms=90), at=100, cause=1, worker=A)
    log.add("call.h", asks("t1-0"), at=5000, cause=1, deliveries=2, worker=B)
    trace, spans = fold(log)
    chat = spans["chat"]
    assert (chat.attributes[semconv.WORKER], chat.start_ns - T0_NS) == (A, 10 * MS)
    assert semconv.TAKEOVERS not in chat.attributes
    process = next(it for it in trace.spans() if takeovers_in(it))
    (told,) = takeovers_in(process)
    assert told.attributes[semconv.TAKEN_FROM] == A
    assert told.attributes[semconv.LOST] == pytest.approx(4.9)


def test_what_a_process_gave_back_and_got_again_is_an_attempt_and_no_takeover() -> None:
    log = TimedLog()
    log.add("start.main", begin("f"), at=0)
    told, given_back = answer(1, says("x"), duration_ms=5), {"Sandstream-Given-Back": "1"}
    log.add("model", told, at=700, cause=1, deliveries=2, worker=A, headers=given_back)
    trace, spans = fold(log)
    assert trace.facts().takeovers == 0
    assert spans["chat"].attributes[semconv.ATTEMPTS] == 2
    assert semconv.LOST not in spans["chat"].attributes


def test_a_process_that_gets_back_what_it_has_done_takes_nothing_over() -> None:
    """Its acknowledgement was lost, with the connection or with the server."""
    log = TimedLog()
    log.add("start.main", begin("f"), at=0)
    log.add("model", answer(1, calls("f", "c"), duration_ms=5), at=10, cause=1, worker=A)
    log.add("call.h", asks("t1-0"), at=5500, cause=1, deliveries=2, worker=A)
    trace, spans = fold(log)
    assert trace.facts().takeovers == 0
    assert semconv.ATTEMPTS not in spans["chat"].attributes
    log.add("started.t1-0", CallStarted(call="t1-0", host=B), at=9000, cause=1, deliveries=3)
    assert fold(log)[0].facts().takeovers == 1, "the next one is another process"


def test_a_task_that_was_taken_over_counts_for_its_run() -> None:
    log = TimedLog()
    log.add("start.main", begin(), at=0, deliveries=2, worker=B)
    log.add("done", DONE, at=1, cause=1, worker=B)
    trace, spans = fold(log)
    assert trace.facts().takeovers == 1
    assert len(takeovers_in(spans["agent"])) == 1


def test_a_run_that_moved_within_a_turn_was_lost_since_the_last_sign_of_work() -> None:
    log = TimedLog()
    log.add("start.p-1", begin(), at=0)
    log.add("turn.p-2", RunMoved(pool="p-2", host="p-2"), at=4000, worker=B)
    log.add("model", answer(1, says("x"), duration_ms=50), at=4100, cause=2, worker=B)
    trace, spans = fold(log)
    assert trace.facts().takeovers == 1
    chat = spans["chat"]
    assert (chat.attributes[semconv.ATTEMPTS], chat.attributes[semconv.LOST]) == (2, 4.0)


def test_a_run_that_waits_for_people_is_moved_without_loss() -> None:
    log = TimedLog()
    log.add("start.p-1", begin("f"), at=0)
    question = ApprovalRequested(call="t1-0", turn=1, agent="a", name="f", call_id="c")
    log.add("waiting", RunWaiting(turn=1, approvals=[question]), at=10, cause=1)
    log.add("approval.decided", ApprovalDecided(call="c", approve=True), at=900)
    log.add("turn.p-2", RunMoved(pool="p-2", host="p-2"), at=1000, worker=B)
    trace, _ = fold(log)
    assert trace.facts().takeovers == 0


def test_retries_are_requests_that_were_repeated_and_no_takeovers() -> None:
    log = TimedLog()
    limited = ErrorInfo(code="model_http", message="slow down", data={"status": 429})
    log.add("start.main", begin(), at=0)
    for number, at in ((1, 10), (2, 1010)):
        wait = ModelDeferred(turn=1, attempt=number, delay_s=1, waited_s=number, error=limited)
        log.add("model", wait, at=at, cause=2 * number - 1)
        log.add("turn.main", TurnRequested(turn=1, agent="a"), at=at + 999)
    log.add("model", answer(1, says("x"), duration_ms=5), at=2020, cause=5)
    trace, _ = fold(log)
    chats = [it for it in trace.spans() if it.operation == "chat"]
    assert [it.attributes.get(semconv.RETRIES, 0) for it in chats] == [0, 1, 1]
    assert (trace.facts().retries, trace.facts().takeovers) == (2, 0)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sandstream-Deliveries": "-5"},
        {"Sandstream-Deliveries": "x", "Sandstream-Given-Back": "y"},
        {"Sandstream-Given-Back": "7"},
        {"Sandstream-Worker": ""},
    ],
)
def test_odd_headers_count_as_absent(headers: dict[str, str]) -> None:
    assert attempt_of(headers)[1:] == (1, 0, "")


def test_a_long_name_and_a_huge_count_are_bounded() -> None:
    attempt = attempt_of({"Sandstream-Deliveries": "9" * 18, "Sandstream-Worker": "w" * 9_999})
    assert attempt.takeovers < 10**6
    assert len(attempt.worker) == 100
