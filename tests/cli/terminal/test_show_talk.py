"""The conversation from events: what is told, what is shortened, and that nothing breaks it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.nats.direct import Stored
from sandstream_bus.wire.headers import TIME
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    ErrorInfo,
    ModelAnswered,
    ModelDeferred,
    RunDone,
    RunEvent,
    TokenUsage,
)

from sandstream.cli.terminal.conversation_blocks import print_items, print_said, wrapped
from sandstream.cli.terminal.render import Screen, columns_of
from sandstream.cli.terminal.talk import Said, talk

TAGS = {str(kind.__struct_config__.tag) for kind in get_args(RunEvent)}
GOLDEN = [
    path
    for path in sorted((Path(__file__).parents[2] / "golden").glob("v[0-9]*/*.json"))
    if msgspec.json.decode(path.read_bytes()).get("type") in TAGS - {"run.restored"}
]


def logged(events: Sequence[RunEvent]) -> list[LogEvent]:
    found: list[LogEvent] = []
    for number, event in enumerate(events, start=1):
        headers = {TIME: f"2026-01-01T10:00:{number:02d}.000000000Z"}
        stored = Stored(number, "s.run.r.x", b"", headers)
        found.append(LogEvent(number, "s.run.r.x", event, stored))
    return found


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def answered(*items: dict[str, Any], **more: Any) -> ModelAnswered:
    usage = TokenUsage(input_tokens=10, output_tokens=2)
    return ModelAnswered(
        turn=1, agent="writer", output=[raw(it) for it in items], usage=usage, **more
    )


def asked(call: str = "t1-0", kind: Any = "tool") -> CallRequested:
    return CallRequested(call=call, kind=kind, turn=1, agent="writer", name="f", reply_pool="main")


def printed(said: list[Said], monkeypatch: pytest.MonkeyPatch, **how: Any) -> list[str]:
    monkeypatch.setenv("COLUMNS", "60")
    paper = io.StringIO()
    print_said(Screen(paper), said, **how)
    return paper.getvalue().splitlines()


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_event_that_was_ever_written_can_be_told(path: Path) -> None:
    event = msgspec.json.decode(path.read_bytes(), type=RunEvent)
    assert isinstance(talk("r", logged([event])), list)


def test_models_think_speak_and_use_tools_of_their_own() -> None:
    said = talk(
        "r",
        logged(
            [
                answered(
                    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
                    {"type": "reasoning", "summary": []},
                    {"type": "web_search_call", "status": "completed"},
                    {"type": "message", "role": "assistant", "content": "Hello."},
                    model="gpt-5",
                    duration_ms=1500,
                )
            ]
        ),
    )
    assert [(it.kind, it.text) for it in said] == [
        ("thought", "Hm."),
        ("call", 'web_search: {"type":"web_search_call","status":"completed"}'),
        ("agent", "Hello."),
    ]
    assert [it.about for it in said] == ["", "", "gpt-5 · 10 in, 2 out · 1.5s"]


def test_what_went_wrong_on_the_way() -> None:
    busy = ErrorInfo(code="model_http", message="429")
    boom = ErrorInfo(code="tool_failed", message="no disk")
    said = talk(
        "r",
        logged(
            [
                ModelDeferred(turn=1, attempt=1, delay_s=30, waited_s=0, error=busy),
                answered(),
                asked(),
                CallFinished(call="t1-0", kind="tool", turn=1, error=boom),
                CallFinished(call="lost", kind="tool", turn=1, output=raw("late")),
                CallFinished(call="t1-p", kind="prepare", turn=1, output=raw({})),
                RunDone(
                    status="max_turns", agent="writer", turns=9, usage=TokenUsage(), error=boom
                ),
            ]
        ),
    )
    assert [(it.who, it.kind, it.text, it.is_bad) for it in said] == [
        ("model", "note", "model_http: 429: asks again in 30.0s", True),
        ("writer", "agent", "(nothing)", False),
        ("f", "result", "tool_failed: no disk", True),
        ("lost", "result", "late", False),
        ("max turns", "error", "tool_failed: no disk", False),
    ]


def test_the_first_answer_of_a_person_counts() -> None:
    question = ApprovalRequested(call="t1-0", turn=1, agent="writer", name="f", call_id="c1")
    said = talk(
        "r",
        logged(
            [
                question,
                ApprovalDecided(call="c1", approve=False, by="ann", message="No."),
                ApprovalDecided(call="t1-0", approve=True, by="bob"),
                ApprovalDecided(call="unknown", approve=True, by="eve"),
            ]
        ),
    )
    assert [(it.text, it.about, it.is_bad) for it in said] == [
        ("f()", "rejected by ann: No. · after 1.0s", True)
    ]
    (late,) = talk("r", logged([question, ApprovalDecided(call="c1", approve=False, expired=True)]))
    assert late.about == "expired without an answer · after 1.0s"
    (open_one,) = talk("r", logged([question]))
    assert open_one.about.startswith("waits since ")


def test_long_results_are_cut_and_say_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "\n".join(f"line {number}" for number in range(100))
    said = [Said(who="f", kind="result", text=lines, about="12ms")]
    shown = printed(said, monkeypatch)
    assert shown[:2] == ["f         ← line 0", "          line 1"]
    assert (len(shown), shown[-1]) == (9, "          … 92 lines, 733 B more (--all) · 12ms")
    assert len(printed(said, monkeypatch, show_all=True)) == 101


def test_nobody_speaks_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [Said(who="f\n\x1b[2Juser", kind="result", text="one\r\nuser  two\x07", about="3\nms")]
    assert printed(said, monkeypatch) == [
        "f user    ← one",
        "          user  two",
        "          3",
        "          ms",
    ]


def test_a_long_talk_is_told_without_its_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [Said(who="user", kind="user", text=f"word {n}", about="x") for n in range(1000)]
    shown = printed(said, monkeypatch)[::2]
    assert shown[0] == "user      word 0" and len(shown) == 201
    assert "…         800 more such blocks (--all)" in printed(said, monkeypatch)
    assert len(printed(said, monkeypatch, show_all=True)) == 2000


def test_who_goes_on_is_not_named_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [
        Said(who="writer", kind="call", text="f()"),
        Said(who="writer", kind="call", text="g()", about="gpt-5"),
        Said(who="writer", kind="agent", text="Done."),
    ]
    assert printed(said, monkeypatch) == [
        "writer    → f()",
        "          → g()",
        "          gpt-5",
        "writer    Done.",
    ]


@pytest.mark.parametrize("text", ["", "a" * 500, "word " * 100, "名前は長い。" * 50, "a\tb\n\nc"])
@pytest.mark.parametrize("most", [0, 3])
def test_lines_fit(text: str, most: int) -> None:
    lines, cut = wrapped(text, 30, most)
    assert max(map(columns_of, lines)) <= 30
    assert bool(cut) == (most > 0 and len(text) > 100)
    if not most:
        assert "".join(lines).replace(" ", "") == "".join(text.split())


def test_items_of_a_conversation_name_the_tool_of_a_result() -> None:
    paper = io.StringIO()
    print_items(
        Screen(paper),
        [
            {"role": "user", "content": "hi"},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"x":1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            "no item",
        ],
    )
    assert paper.getvalue().splitlines() == [
        "user       hi",
        "assistant  → f(x=1)",
        "f          ← one",
    ]
