"""The fold from a run's events to its spans: pure, so it is tested as a function."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_actors.tracing.span import Span
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    CancelRequested,
    ErrorInfo,
    GuardrailRecord,
    InputStaged,
    ModelDeferred,
    ModelRetry,
    ParentLink,
    PastEvent,
    RunDone,
    RunMoved,
    RunReopened,
    RunRestored,
    RunWaiting,
    TokenUsage,
    TurnRequested,
)
from sandstream_bus.wire.trace_context import TraceContext, call_span_id, run_span_id, trace_id_of
from support.scripted_log import USAGE, answer, asks, begin, calls, ends, raw, says
from support.tracing.timed_log import MS, T0_NS, TimedLog, takeovers_told

CALLER = TraceContext("a" * 32, "b" * 16)


def done(status: str = "completed", error: ErrorInfo | None = None, turns: int = 1) -> RunDone:
    fields = {"status": status, "agent": "a", "turns": turns, "usage": USAGE, "error": error}
    return msgspec.convert(fields, RunDone)


def took(call: str, ms: int, **more: object) -> CallFinished:
    return msgspec.structs.replace(ends(call), duration_ms=ms, **more)


def tool_run() -> TimedLog:
    """Two model turns around two calls of the same answer."""
    log = TimedLog()
    log.add("start.main", begin("f"), at=0)
    log.add("model", answer(1, calls("f", "c0"), calls("f", "c1"), duration_ms=40), at=50, cause=1)
    log.add("call.h", named("t1-0"), at=51, cause=1)
    log.add("call.h", named("t1-1"), at=51, cause=1)
    log.add("result.main", took("t1-0", 10), at=65, cause=3)
    log.add("result.main", took("t1-1", 30), at=85, cause=4)
    log.add("model", answer(2, says("x"), duration_ms=20), at=110, cause=6)
    log.add("done", done(turns=2), at=111, cause=6)
    return log


def named(call: str, name: str = "f") -> CallRequested:
    return msgspec.structs.replace(asks(call), name=name, call_id=f"id-{call}")


def spans_of(log: TimedLog) -> dict[str, Span]:
    """By name and, for names that come twice, by number."""
    found: dict[str, Span] = {}
    for span in RunTrace.of(log.run, log.events).spans():
        name, count = span.name, 2
        while name in found:
            name, count = f"{span.name} #{count}", count + 1
        found[name] = span
    return found


def test_a_run_is_its_agents_span_with_the_work_below_it() -> None:
    spans = spans_of(tool_run())
    run = spans["invoke_agent a"]
    assert run.span_id == run_span_id("r") and run.trace_id == trace_id_of("r")
    assert (run.parent_id, run.start_ns, run.end_ns) == ("", T0_NS, T0_NS + 111 * MS)
    chat, second = spans["chat m"], spans["chat m #2"]
    assert (chat.start_ns - T0_NS, chat.end_ns - T0_NS) == (10 * MS, 50 * MS)
    assert (second.start_ns - T0_NS, second.end_ns - T0_NS) == (90 * MS, 110 * MS)
    tool = spans["execute_tool f"]
    assert tool.span_id == call_span_id("r", "t1-0")
    assert tool.attributes[semconv.TOOL_CALL_ID] == "id-t1-0"
    assert all(not span.is_open and not span.error for span in spans.values())


def test_the_time_in_a_queue_is_told_from_the_time_at_work() -> None:
    spans = spans_of(tool_run())
    tool = spans["execute_tool f #2"]
    assert (tool.start_ns - T0_NS, tool.end_ns - T0_NS) == (55 * MS, 85 * MS)
    assert tool.queued_ns == 4 * MS
    assert spans["chat m"].queued_ns == 10 * MS


def test_messages_are_spans_and_the_work_links_to_what_led_to_it() -> None:
    spans = spans_of(tool_run())
    sent = spans["send sandstream.run.{run}.call.{pool}"]
    work = spans["process sandstream.run.{run}.call.{pool}"]
    assert (sent.kind, work.kind) == ("producer", "consumer")
    assert [link.span_id for link in work.links] == [sent.span_id]
    assert sent.parent_id == spans["process sandstream.run.{run}.start.{pool}"].span_id
    assert spans["execute_tool f"].parent_id == work.span_id
    assert work.parent_id == spans["invoke_agent a"].span_id
    assert work.attributes[semconv.CONSUMER_GROUP] == "tools-h"


def test_many_results_that_lead_to_one_decision_are_all_linked() -> None:
    spans = spans_of(tool_run())
    work = spans["process sandstream.run.{run}.result.{pool}"]
    why = {link.span_id: link.attributes[semconv.LINK] for link in work.links}
    first = spans["send sandstream.run.{run}.result.{pool}"].span_id
    last = spans["send sandstream.run.{run}.result.{pool} #2"].span_id
    assert why == {last: "message", first: "fan_in"}


def test_a_message_that_was_delivered_again_says_so() -> None:
    log = TimedLog()
    log.add("start.main", begin(), at=0)
    log.add("model", answer(1, says("x"), duration_ms=5), at=6000, cause=1, deliveries=3)
    log.add("done", done(), at=6001, cause=1, deliveries=3)
    trace = RunTrace.of("r", log.events)
    work = next(it for it in trace.spans() if it.operation == "process")
    assert work.attributes[semconv.DELIVERIES] == 3
    assert work.links[0].attributes == {semconv.LINK: "redelivery", semconv.DELIVERIES: 3}
    assert (trace.facts().retries, trace.facts().takeovers) == (0, 2)


def test_a_callers_span_is_the_parent_and_its_trace_is_ours() -> None:
    log = TimedLog()
    log.add("start.main", begin(), at=0, traceparent=CALLER.header)
    log.add("done", done(), at=1, cause=1)
    run = spans_of(log)["invoke_agent a"]
    assert (run.trace_id, run.parent_id, run.sampled) == (CALLER.trace_id, CALLER.span_id, True)


@pytest.mark.parametrize(
    "header", ["", "00-zz", f"00-{'0' * 32}-{'b' * 16}-01", f"ff-{'a' * 32}-{'b' * 16}-01", "\0"]
)
def test_a_header_that_is_not_valid_is_none(header: str) -> None:
    log = TimedLog()
    log.add("start.main", begin(), at=0, traceparent=header, headers={"Sandstream-Cause": "-1x"})
    run = spans_of(log)["invoke_agent a"]
    assert (run.trace_id, run.parent_id) == (trace_id_of("r"), "")


def test_a_child_run_is_below_the_call_that_started_it() -> None:
    parent = TimedLog()
    parent.add("start.main", begin("f"), at=0)
    asked = msgspec.structs.replace(named("t1-0"), kind="child", child="r_t1-0")
    parent.add("child", asked, at=10, cause=1)
    used = TokenUsage(requests=2, input_tokens=7, output_tokens=3, total_tokens=10)
    parent.add("result.main", took("t1-0", 0, usage=used, tool_calls=4), at=90)
    call = spans_of(parent)["execute_tool f"]

    child = TimedLog("r_t1-0", first=100)
    link = ParentLink(run="r", call="t1-0", turn=1, pool="main", root="r")
    header = TraceContext(trace_id_of("r"), call_span_id("r", "t1-0")).header
    child.add(
        "start.main", msgspec.structs.replace(begin(), parent=link), at=11, traceparent=header
    )
    run = spans_of(child)["invoke_agent a"]
    assert (run.trace_id, run.parent_id) == (call.trace_id, call.span_id)
    assert (call.end_ns - call.start_ns, call.parent_id) == (80 * MS, run_span_id("r"))
    facts = RunTrace.of("r", parent.events).facts()
    assert (facts.children, facts.tool_calls, facts.usage) == (1, 5, used)


def test_a_handoff_begins_another_agents_span() -> None:
    log = TimedLog()
    log.add("start.main", begin(), at=0)
    log.add("model", answer(1, calls("transfer_to_b", "c"), duration_ms=5), at=10, cause=1)
    log.add("turn.main", TurnRequested(turn=2, agent="b", reason="handoff"), at=11, cause=1)
    log.add("model", answer(2, says("x"), agent="b", duration_ms=5), at=20, cause=3)
    log.add("done", done(turns=2), at=21, cause=3)
    spans = spans_of(log)
    other = spans["invoke_agent b"]
    assert other.parent_id == spans["invoke_agent a"].span_id
    assert (other.start_ns - T0_NS, other.end_ns - T0_NS) == (11 * MS, 21 * MS)
    assert (
        spans["handoff a to b"].parent_id
        == spans["process sandstream.run.{run}.start.{pool}"].span_id
    )
    assert spans["chat m2"].agent == "b"


def test_a_handoff_that_the_users_code_took_part_in_is_one_span() -> None:
    log = TimedLog()
    log.add("start.main", begin(), at=0)
    log.add("call.h", msgspec.structs.replace(asks("t1-h"), kind="handoff"), at=1, cause=1)
    log.add("result.main", took("t1-h", 3, output=raw({"agent": "b"})), at=5, cause=2)
    log.add("turn.main", TurnRequested(turn=2, agent="b", reason="handoff"), at=6, cause=3)
    spans = [it for it in RunTrace.of("r", log.events).spans() if it.operation == "handoff"]
    assert [it.name for it in spans] == ["handoff a to b"]


def test_guardrails_approvals_and_rate_limits_are_spans_of_their_own() -> None:
    log = TimedLog()
    log.add("start.main", begin("f"), at=0)
    log.add("call.h", msgspec.structs.replace(asks("t1-g"), kind="guard"), at=1, cause=1)
    record = GuardrailRecord(kind="input", name="polite", tripped=True)
    log.add("result.main", took("t1-g", 2, guardrails=[record]), at=4, cause=2)
    limited = ErrorInfo(code="model_http", message="slow down", data={"status": 429})
    wait = ModelDeferred(turn=1, attempt=1, delay_s=1, waited_s=1, error=limited, duration_ms=3)
    log.add("model", wait, at=10, cause=1)
    log.add("turn.main", TurnRequested(turn=1, agent="a"), at=1010)
    log.add("model", answer(1, calls("f", "c"), duration_ms=5), at=1020, cause=5)
    question = ApprovalRequested(call="t1-0", turn=1, agent="a", name="f", call_id="c")
    log.add("approval.requested", question, at=1021, cause=5)
    log.add("waiting", RunWaiting(turn=1, approvals=[question]), at=1022, cause=5)
    trace = RunTrace.of("r", log.events)
    assert trace.facts().status == "waiting" and trace.facts().retries == 1
    log.add("approval.decided", ApprovalDecided(call="c", approve=False, by="eve"), at=9000)
    spans = spans_of(log)
    guard = spans["guardrail polite"]
    assert guard.attributes[semconv.GUARDRAIL_TRIPPED] is True
    assert guard.parent_id == spans["guardrails"].span_id
    assert (spans["chat m"].error, spans["chat m #2"].error) == ("429", "")
    waited = spans["wait for the rate limit"]
    assert waited.end_ns - waited.start_ns == 1000 * MS
    approval = spans["approval f"]
    assert approval.end_ns - approval.start_ns == 7979 * MS
    assert approval.attributes[semconv.APPROVAL_DECISION] == "rejected"
    assert approval.attributes[semconv.APPROVAL_BY] == "eve"
    assert RunTrace.of("r", log.events).facts().status == "running"


def test_a_model_that_fails_is_a_chat_with_an_error() -> None:
    log = TimedLog()
    log.add("start.main", begin(), at=0)
    data = {"kind": "http", "status": 500, "duration_ms": 7}
    error = ErrorInfo(code="model_http", message="no", data=data)
    log.add("done", done("failed", error, turns=0), at=9, cause=1)
    spans = spans_of(log)
    assert spans["chat m"].end_ns - spans["chat m"].start_ns == 7 * MS
    assert spans["chat m"].queued_ns == 2 * MS
    assert (spans["chat m"].error, spans["invoke_agent a"].error) == ("500", "model_http")


def test_an_answer_that_cannot_be_used_is_not_another_chat() -> None:
    log = TimedLog()
    log.add("start.main", begin(), at=0)
    log.add("model", answer(1, calls("nope", "c"), duration_ms=1), at=5, cause=1)
    error = ErrorInfo(code="model_behavior", message="no tool nope", data={"kind": "behavior"})
    log.add("done", done("failed", error), at=6, cause=1)
    assert sum(it.operation == "chat" for it in RunTrace.of("r", log.events).spans()) == 1


def test_a_cancelled_run_ends_what_it_had_begun() -> None:
    log = TimedLog()
    log.add("start.main", begin("f"), at=0)
    log.add("call.h", named("t1-0"), at=1, cause=1)
    log.add("cancel", CancelRequested(), at=5)
    log.add("done", done("cancelled"), at=6, cause=3)
    log.add("result.main", took("t1-0", 1), at=50, cause=2)
    spans = spans_of(log)
    assert spans["execute_tool f"].error == "unfinished"
    assert max(span.end_ns for span in spans.values()) == T0_NS + 6 * MS
    assert not any(span.is_open for span in spans.values())
    assert [it.name for it in spans["invoke_agent a"].events] == ["run.cancel"]


def test_a_run_under_way_has_open_spans() -> None:
    log = TimedLog()
    log.add("start.main", begin("f"), at=0)
    log.add("call.h", named("t1-0"), at=1, cause=1)
    spans = spans_of(log)
    assert spans["execute_tool f"].is_open and spans["invoke_agent a"].is_open


def test_a_log_without_its_beginning_still_gives_a_trace() -> None:
    log = tool_run()
    trace = RunTrace.of("r", log.events[3:])
    assert trace.facts().truncated
    assert trace.spans()[0].attributes[semconv.RUN_TRUNCATED] is True
    assert any(span.name == "execute_tool f" for span in trace.spans())
    given = TimedLog()
    given.add("model", answer(1, says("x")), at=0, traceparent=CALLER.header)
    run = RunTrace.of("r", given.events).spans()[0]
    assert (run.trace_id, run.parent_id) == (CALLER.trace_id, "")


def test_a_clock_that_jumps_back_makes_no_span_negative() -> None:
    log = TimedLog()
    log.add("start.main", begin("f"), at=5000)
    log.add("call.h", named("t1-0"), at=10, cause=1)
    log.add("result.main", took("t1-0", 90_000), at=20, cause=2)
    log.add("done", done(), at=-40, cause=3)
    for span in RunTrace.of("r", log.events).spans():
        assert span.end_ns >= span.start_ns and span.queued_ns >= 0


def test_a_reopened_run_gets_a_new_span_that_follows_from_the_old() -> None:
    log = TimedLog()
    log.add("start.main", begin(), at=0)
    log.add("done", done("failed", ErrorInfo(code="parked", message="x")), at=5, cause=1)
    log.add("turn.main", RunReopened(reason="again"), at=50)
    log.add("model", answer(1, says("x"), duration_ms=2), at=60, cause=3)
    log.add("done", done(), at=61, cause=3)
    spans = spans_of(log)
    again = spans["invoke_agent a #2"]
    assert again.links[0].span_id == spans["invoke_agent a"].span_id
    assert RunTrace.of("r", log.events).facts().status == "completed"
    assert spans["invoke_agent a"].end_ns == T0_NS + 5 * MS


def test_a_restored_run_knows_its_agents_and_draws_only_what_happened_here() -> None:
    past = PastEvent(subject="s.run.r.start.main", body=raw(begin("f")))
    log = TimedLog()
    log.add("start.main", RunRestored(events=[past], pool="main", host="h"), at=0)
    log.add("model", answer(2, says("x"), duration_ms=2), at=10, cause=1)
    log.add("done", done(turns=2), at=11, cause=1)
    spans = spans_of(log)
    assert spans["invoke_agent a"].attributes[semconv.REQUEST_MODEL] == "m"
    assert "chat m" in spans and not RunTrace.of("r", log.events).facts().truncated


def test_a_call_that_is_asked_again_after_a_move_is_the_same_step() -> None:
    log = TimedLog()
    log.add("start.main", begin("f"), at=0)
    log.add("call.h", named("t1-0"), at=1, cause=1)
    log.add("turn.main", RunMoved(pool="main", host="h2"), at=100)
    log.add("call.h2", named("t1-0"), at=101, cause=3)
    log.add("result.main", took("t1-0", 1), at=110, cause=4)
    log.add("done", done(), at=111, cause=5)
    trace = RunTrace.of("r", log.events)
    (found,) = (it for it in trace.spans() if it.operation == "tool")
    assert found.span_id == call_span_id("r", "t1-0", ":m1r0")
    assert (found.attributes[semconv.ATTEMPTS], found.attributes[semconv.TAKEOVERS]) == (2, 1)
    assert (trace.facts().takeovers, trace.facts().tool_calls) == (1, 1)
    told = [it for span in trace.spans() for it in span.events if it.name == semconv.TAKEOVER]
    assert sum(map(takeovers_told, told)) == 1, "it counts once"
    assert found.attributes[semconv.LOST] == pytest.approx(0.1)


def test_what_has_ended_never_changes_as_the_log_goes_on() -> None:
    """Spans are exported as they end: later events must not rewrite them."""
    log = tool_run()
    whole = {span.span_id: span for span in RunTrace.of("r", log.events).spans()}
    for length in range(len(log.events)):
        for span in RunTrace.of("r", log.events[:length]).spans():
            if not span.is_open:
                assert whole[span.span_id] == span
                assert span.last_seq <= length


def test_folding_again_or_bit_by_bit_gives_the_same_spans() -> None:
    log = tool_run()
    trace = RunTrace("r")
    for event in log.events:
        trace.fold([event])
        trace.fold([event])  # somebody read it twice
    assert trace.spans() == RunTrace.of("r", log.events).spans()
    assert trace.facts() == RunTrace.of("r", log.events).facts()


def test_contents_are_there_only_on_request_and_never_against_the_runs_will() -> None:
    log = tool_run()
    assert not any(it.contents for it in RunTrace.of("r", log.events).spans())
    told = RunTrace.of("r", log.events, contents=True).spans()
    chat = next(it for it in told if it.operation == "chat")
    assert "hi" in str(chat.contents[semconv.INPUT_MESSAGES])
    log.events[0] = log.events[0]._replace(event=begin("f", options={"trace_contents": False}))
    told = RunTrace.of("r", log.events, contents=True).spans()
    assert not any(it.contents for it in told)


def test_a_run_that_waits_for_a_person_works_at_nothing() -> None:
    log = TimedLog()
    log.add("start.main", begin("f"), at=0)
    log.add("model", answer(1, calls("f", "c"), duration_ms=5), at=10, cause=1)
    question = ApprovalRequested(call="t1-0", turn=1, agent="a", name="f", call_id="c")
    log.add("approval.requested", question, at=11, cause=1)
    log.add("waiting", RunWaiting(turn=1, approvals=[question]), at=12, cause=1)
    lasting = [it.name for it in RunTrace.of("r", log.events).spans() if it.is_open]
    assert lasting == ["invoke_agent a", "approval f"]
    assert RunTrace.of("r", log.events).facts().status == "waiting"
    for said in (InputStaged(input="and more"), CancelRequested(mode="after_turn")):
        log.add("input", said, at=20)  # what nobody has asked for answers no question
        assert RunTrace.of("r", log.events).facts().status == "waiting"
    log.add("approval.decided", ApprovalDecided(call="t1-0", approve=True), at=30)
    assert RunTrace.of("r", log.events).facts().status == "running"


def test_what_cannot_be_read_inside_of_an_event_hides_no_other() -> None:
    deep = Raw(b"[" * 5000 + b"]" * 5000)
    log = TimedLog()
    broken = PastEvent(subject="s.run.r.start.main", body=Raw(b'{"type":"run.started"}'))
    log.add("start.main", RunRestored(events=[broken], pool="main", host="h"), at=0)
    log.add("model", answer(1, deep, Raw(b"nonsense"), duration_ms=1), at=5, cause=1)
    log.add("call.h", msgspec.structs.replace(asks("t1-h"), kind="handoff"), at=6, cause=1)
    log.add("result.main", took("t1-h", 3, output=deep), at=9, cause=3)
    log.add("done", done(), at=10, cause=4)
    names = [it.name for it in RunTrace.of("r", log.events, contents=True).spans()]
    assert "chat" in names and "handoff from a" in names


def test_a_model_call_that_was_repeated_says_what_had_failed() -> None:
    log = TimedLog()
    log.add("start.main", begin(), at=0)
    usage = msgspec.structs.replace(USAGE, requests=2)
    retry = ModelRetry(code="429", after_ms=3, delay_s=0.5)
    told = answer(1, says("x"), duration_ms=600, retries=[retry])
    log.add("model", msgspec.structs.replace(told, usage=usage), at=601, cause=1)
    trace = RunTrace.of("r", log.events)
    chat = next(it for it in trace.spans() if it.operation == "chat")
    assert (chat.attributes[semconv.RETRIES], trace.facts().retries) == (2, 2)
    (moment,) = chat.events
    assert moment.time_ns == chat.start_ns + 3 * MS
    assert moment.attributes == {semconv.ERROR_TYPE: "429", semconv.RETRY_DELAY: 0.5}
