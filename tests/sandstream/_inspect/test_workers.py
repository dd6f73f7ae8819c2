"""The processes behind a timeline: who they were, and how a column names them."""

from __future__ import annotations

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.span import Attributes, SpanEvent
from support.tracing.made_spans import MadeRun, at, timeline_of

from sandstream._inspect.workers import Where, processes_text, workers_of


def made(*workers: str, lost: str = "") -> MadeRun:
    run = MadeRun("r", "writer", 0, 1000)
    told: Attributes = {semconv.TAKEOVERS: 2, semconv.LOST: 0.1, semconv.WORKER: workers[-1]}
    told |= {semconv.TAKEN_FROM: lost} if lost else {}
    events = [SpanEvent(name=semconv.TAKEOVER, time_ns=at(300), attributes=told)]
    process = run.add("process", "process call", 200, 400, events=events)
    for number, worker in enumerate(workers):
        parent = process if worker == workers[-1] else None
        start = 300 if parent else 10 * number
        run.add(
            "tool", f"t{number}", start, 400, parent=parent, attributes={semconv.WORKER: worker}
        )
    return run


def test_each_process_with_what_it_did_and_what_was_lost_with_it() -> None:
    found = workers_of(timeline_of(made("a:1:x", "b:2:y", lost="a:1:x")))
    assert [(it.worker, it.steps, it.takeovers, it.lost) for it in found] == [
        ("a:1:x", {"tool": 1}, 0, 1),
        ("b:2:y", {"tool": 1}, 2, 0),
        ("", {}, 0, 1),  # of two that were lost, the log names one
    ]
    assert processes_text(found) == "a:1 (lost), b:2"


def test_a_run_of_an_older_version_names_nobody() -> None:
    run = MadeRun("r", "writer", 0, 1000)
    run.add("tool", "search", 100, 400)
    drawn = timeline_of(run)
    assert workers_of(drawn) == []
    assert Where.of(drawn.rows, is_wide=True).title == ""


def test_one_machine_is_told_by_pids_and_several_by_names_where_there_is_room() -> None:
    one = timeline_of(made("a:1:x", "a:2:y")).rows
    assert Where.of(one, is_wide=False).text("a:2:y") == "2"
    several = timeline_of(made("a:1:x", "b:2:y")).rows
    assert Where.of(several, is_wide=True).text("b:2:y") == "b:2"
    assert Where.of(several, is_wide=False).title == ""


def test_odd_names_take_no_more_room_than_others() -> None:
    odd = timeline_of(made("x" * 5000, ":::::" + "9" * 5000)).rows
    for is_wide in (True, False):
        where = Where.of(odd, is_wide=is_wide)
        assert all(len(where.text(row.worker)) <= 40 for row in odd)
