"""Spans of run trees as rows: what is folded away, what is nested, and what never goes wrong."""

from __future__ import annotations

import random
from typing import Any, get_args

import pytest
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.span import Operation, SpanEvent, SpanLink
from support.tracing.made_spans import MS, TRACE, MadeRun, at, timeline_of

from sandstream._inspect.timeline import Row, Timeline


def by_label(timeline: Timeline) -> dict[str, Row]:
    return {row.label: row for row in timeline.rows}


def parts_of(row: Row) -> list[tuple[str, float, float]]:
    """The bar in milliseconds since the start."""
    return [
        (part.kind, (part.start_ns - at(0)) / MS, (part.end_ns - at(0)) / MS) for part in row.parts
    ]


def test_messages_are_folded_into_the_work_that_they_led_to() -> None:
    run = MadeRun("r", "writer", 0, 1000)
    run.add("send", "send call", 100, 100)
    process = run.add(
        "process", "process call", 150, 400, queued=50, attributes={semconv.WORKER: "h:1:a"}
    )
    run.add("tool", "search", 160, 400, parent=process, attributes={semconv.WORKER: "h:2:b"})
    run.add("tool", "later", 300, 400, parent=process)
    run.add("process", "process result", 400, 410, queued=7)
    rows = timeline_of(run).rows
    assert [(row.label, row.depth) for row in rows] == [("writer", 0), ("search", 1), ("later", 1)]
    assert parts_of(rows[1]) == [("queued", 100, 160), ("work", 160, 400)]
    assert (rows[1].worker, rows[2].worker) == ("h:2:b", "")
    assert parts_of(rows[2]) == [("work", 300, 400)]


def test_a_queue_that_the_work_knows_itself_counts_once() -> None:
    run = MadeRun("r", "writer", 0, 1000)
    process = run.add("process", "process call", 150, 400, queued=50)
    run.add("tool", "search", 180, 400, parent=process, queued=30)
    search = by_label(timeline_of(run))["search"]
    assert parts_of(search) == [("queued", 150, 180), ("work", 180, 400)]


def test_a_message_that_leads_nowhere_is_seen_while_it_lasts_or_if_it_failed() -> None:
    run = MadeRun("r", "writer", 0)
    run.add("process", "process open", 100)
    run.add("process", "process failed", 200, 300, error="parked")
    run.add("process", "process done", 300, 400)
    assert [row.label for row in timeline_of(run, now=500).rows] == [
        "writer",
        "process open",
        "process failed",
    ]


def test_child_runs_are_below_the_call_that_started_them() -> None:
    parent = MadeRun("r", "manager", 0, 1000, tokens=70, turns=2)
    call = parent.add("tool", "research", 100, 900)
    child = MadeRun("r_t1-0", "researcher", 120, 880, parent=call, tokens=40, status="failed")
    child.add("chat", "gpt-5", 130, 300, tokens=(30, 9))
    drawn = timeline_of(parent, child)
    assert [(row.depth, row.label, row.is_run) for row in drawn.rows] == [
        (0, "manager", True),
        (1, "research", False),
        (2, "researcher", True),
        (3, "chat gpt-5", False),
    ]
    rows = by_label(drawn)
    assert (rows["manager"].input_tokens, rows["manager"].turns) == (70, 2)
    assert (rows["researcher"].status, rows["researcher"].run) == ("failed", "r_t1-0")
    assert (rows["chat gpt-5"].input_tokens, rows["chat gpt-5"].output_tokens) == (30, 9)
    assert (drawn.runs, drawn.is_open) == (2, False)
    alone = timeline_of(child)
    assert [row.depth for row in alone.rows] == [0, 1]  # its parent is in another log


def test_an_agent_after_a_handoff_is_no_run_of_its_own() -> None:
    run = MadeRun("r", "first", 0, 1000)
    second = run.add("agent", "second", 500, 1000)
    run.add("chat", "gpt-5", 510, 990, parent=second)
    rows = timeline_of(run).rows
    assert [(row.label, row.is_run) for row in rows][:2] == [("first", True), ("second", False)]


def test_the_part_before_a_retry_has_its_own_end_and_cost() -> None:
    run = MadeRun("r", "writer", 0, 100, tokens=300)
    run.spans[0].error = "model_refused"
    run.spans[0].attributes |= {
        semconv.RUN_STATUS: "failed",
        semconv.RUN_TURNS: 1,
        semconv.INPUT_TOKENS: 40,
    }
    link = SpanLink(trace_id=TRACE, span_id=run.top, attributes={semconv.LINK: "reopened"})
    run.add("agent", "writer", 500, 900, parent="", links=[link])
    run.facts.turns = 2
    before, after = timeline_of(run).rows
    assert (before.is_run, before.status, before.turns, before.input_tokens) == (
        (True, "failed", 1, 40)
    )
    assert (after.is_run, after.status, after.turns, after.input_tokens) == (
        (True, "completed", 2, 300)
    )


def test_what_lasts_ends_now_and_what_a_run_left_open_ends_with_it() -> None:
    going = MadeRun("r", "writer", 0)
    going.add("tool", "search", 100)
    drawn = timeline_of(going, now=700)
    assert [(row.is_open, row.end_ns) for row in drawn.rows] == [(True, at(700))] * 2
    assert drawn.is_open and drawn.end_ns == at(700)
    over = MadeRun("r", "writer", 0, 300)
    over.add("tool", "search", 100)
    search = by_label(timeline_of(over, now=700))["search"]
    assert (search.is_open, search.end_ns, search.status) == (False, at(300), "ok")


def test_waits_show_in_what_they_are_part_of_where_nothing_else_goes_on() -> None:
    run = MadeRun("r", "cashier", 0, 1000)
    run.add("chat", "gpt-5", 0, 100)
    run.add("approval", "approval refund", 100, 800)
    run.add("tool", "search", 150, 300)
    run.add("wait", "wait", 850, 950)
    row = timeline_of(run).rows[0]
    assert parts_of(row) == [
        ("work", 0, 100),
        ("person", 100, 150),
        ("work", 150, 300),
        ("person", 300, 800),
        ("work", 800, 850),
        ("rate_limit", 850, 950),
        ("work", 950, 1000),
    ]


def takeover(at_ms: float, lost_s: float, worker: str = "") -> SpanEvent:
    about: dict[str, Any] = {semconv.TAKEOVERS: 1, semconv.LOST: lost_s}
    if worker:
        about[semconv.TAKEN_FROM] = worker
    return SpanEvent(name=semconv.TAKEOVER, time_ns=at(at_ms), attributes=about)


def test_what_a_lost_process_had_is_lost_and_not_in_a_queue() -> None:
    run = MadeRun("r", "writer", 0, 1000, takeovers=1)
    events = [takeover(700, 0.5, "h:1:a")]
    process = run.add("process", "process call", 200, 900, queued=100, events=events)
    tried = {semconv.ATTEMPTS: 2, semconv.TAKEOVERS: 1, semconv.WORKER: "h:2:b"}
    run.add("tool", "search", 700, 900, parent=process, queued=100, attributes=tried)
    writer, search = timeline_of(run).rows
    assert parts_of(search) == [("queued", 100, 200), ("lost", 200, 700), ("work", 700, 900)]
    assert (search.attempts, search.takeovers, search.lost_ns) == (2, 1, 500 * MS)
    assert (search.worker, search.lost_worker) == ("h:2:b", "h:1:a")
    assert (search.queued_ns, search.took_ns) == (100 * MS, 200 * MS)
    assert (writer.takeovers, writer.attempts) == (1, 1)
    assert ("lost", 200, 700) in parts_of(writer)


def test_what_was_lost_after_a_step_is_seen_in_the_run() -> None:
    """The process died between the model's answer and the calls that follow from it."""
    run = MadeRun("r", "writer", 0, 1000)
    process = run.add("process", "process start", 0, 900, events=[takeover(900, 0.7)])
    run.add("chat", "gpt-5", 0, 200, parent=process)
    writer, chat = timeline_of(run).rows
    assert parts_of(chat) == [("work", 0, 200)]
    assert chat.lost_ns == 0
    assert parts_of(writer) == [("work", 0, 200), ("lost", 200, 900), ("work", 900, 1000)]


def test_a_run_whose_beginning_is_lost_still_has_rows() -> None:
    run = MadeRun("r", "", 500, 1000, truncated=True)
    run.add("tool", "search", 600, 700, parent="a span that nobody has")
    drawn = timeline_of(run)
    assert drawn.truncated and drawn.rows[0].truncated
    assert [row.depth for row in drawn.rows] == [0, 0]


def test_spans_in_circles_are_drawn_once() -> None:
    run = MadeRun("r", "writer", 0, 1000)
    run.add("custom", "a", 100, 200, parent="r/2")
    run.add("custom", "b", 100, 200, parent="r/1")
    run.add("custom", "self", 100, 200, parent="r/3")
    assert sorted(row.label for row in timeline_of(run).rows) == ["a", "b", "self", "writer"]


def test_nothing_at_all() -> None:
    drawn = timeline_of()
    assert (drawn.rows, drawn.start_ns, drawn.end_ns, drawn.runs) == ([], 0, 0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_clocks_say_bars_are_whole_and_never_run_backwards(seed: int) -> None:
    dice = random.Random(seed)
    run = MadeRun("r", "writer", dice.choice([0, 500]), dice.choice([0, 1000, -200]))
    for _ in range(60):
        parent = f"r/{dice.randrange(len(run.spans))}"
        start = dice.randint(-300, 1500)
        end = dice.choice([0, start, start - 400, start + dice.randint(0, 800)])
        operation = dice.choice(get_args(Operation))
        run.add(operation, "x", start, end, parent=parent, queued=dice.randint(-50, 300))
    drawn = timeline_of(run, now=dice.choice([-5000, 0, 2000]))
    depths = {"": -1}
    for row in drawn.rows:
        assert drawn.start_ns <= row.start_ns <= row.work_ns <= row.end_ns <= drawn.end_ns
        assert row.parts[0].start_ns == row.start_ns and row.parts[-1].end_ns == row.end_ns
        for part, following in zip(row.parts, row.parts[1:], strict=False):
            assert part.start_ns <= part.end_ns == following.start_ns
        assert row.depth == depths[row.parent_id] + 1
        depths[row.span_id] = row.depth


def test_the_same_spans_give_the_same_rows_in_any_order() -> None:
    run = MadeRun("r", "writer", 0, 1000)
    process = run.add("process", "process call", 150, 400, queued=50)
    run.add("tool", "b", 160, 400, parent=process)
    run.add("tool", "a", 160, 400, parent=process)
    run.spans[1].links.append(SpanLink(trace_id="t", span_id="s"))
    expected = timeline_of(run)
    run.spans.reverse()
    assert timeline_of(run) == expected
