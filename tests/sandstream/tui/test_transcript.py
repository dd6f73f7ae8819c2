"""The transcript as data: stored events, deltas, live output, takeovers."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from sandstream_bus.wire.messages import CancelRequested, ErrorInfo, RunDone, RunEvent
from sandstream_bus.wire.model_records import TokenUsage
from support.scripted_log import RUN, answer, asks, begin, calls, ends, log, says
from support.tracing.timed_log import TimedLog

from sandstream._inspect.reader import RunReader
from sandstream.sessions.events import CommandOutput, RunStep, SessionEvent, TextDelta, TurnBegan
from sandstream.tui.conversation.blocks import AgentText, CallStep, Note, UserText
from sandstream.tui.conversation.transcript import Transcript


def steps(events: Iterable[RunEvent]) -> list[SessionEvent]:
    reader = RunReader(RUN)
    return [RunStep(turn=1, row=reader.feed(it)) for it in log(*events)]


def delta(text: str, attempt: int = 1, number: int = 1) -> TextDelta:
    return TextDelta(turn=1, run=RUN, model_turn=1, attempt=attempt, number=number, text=text)


def told(*events: SessionEvent) -> Transcript:
    transcript = Transcript(is_session=True)
    for event in events:
        transcript.take(event)
    return transcript


def test_the_stored_answer_replaces_what_was_written_live() -> None:
    start, said = steps([begin(), answer(1, says("Hello, Ann."))])
    transcript = told(TurnBegan(turn=1, run=RUN), start, delta("Hel"), delta("lo"))
    (*_, live) = transcript.blocks
    assert isinstance(live, AgentText) and live.is_live and live.text == "Hello"
    transcript.changes()
    transcript.take(said)
    assert transcript.changes() == [live]
    assert live.text == "Hello, Ann." and not live.is_live
    assert [type(it).__name__ for it in transcript.blocks] == ["TurnHead", "UserText", "AgentText"]


def test_text_that_was_missed_is_marked_until_the_stored_answer_comes() -> None:
    (start, said) = steps([begin(), answer(1, says("One two three four."))])
    transcript = told(start, delta("two ", number=40), delta("three", number=41))
    (*_, live) = transcript.blocks
    assert isinstance(live, AgentText) and live.text == "…\n\ntwo three"
    transcript.take(delta("four.", number=90))  # after an outage
    assert live.text == "…\n\ntwo three …\n\nfour."
    transcript.take(said)
    assert live.text == "One two three four."


def test_what_an_earlier_try_wrote_no_longer_counts() -> None:
    transcript = told(delta("wrong"), delta("right", 2), delta("late", 1))
    assert [it.text for it in transcript.blocks if isinstance(it, AgentText)] == ["right"]


def test_output_that_comes_before_its_call_is_kept_for_it() -> None:
    piece = CommandOutput(turn=1, run=RUN, call="c1", stream="stdout", text="early\n")
    start, said = steps([begin("f"), answer(1, calls("f", "c1"))])
    transcript = told(start, piece, said)
    (call,) = [it for it in transcript.blocks if isinstance(it, CallStep)]
    assert call.live == "early\n"


def test_live_output_is_bounded() -> None:
    start, said = steps([begin("f"), answer(1, calls("f", "c1"))])
    transcript = told(start, said)
    for number in range(3000):
        text = f"line {number} {'x' * 100}\n"
        transcript.take(CommandOutput(turn=1, run=RUN, call="c1", stream="stdout", text=text))
    (call,) = [it for it in transcript.blocks if isinstance(it, CallStep)]
    assert len(call.live) <= 64 * 1024 and call.live.endswith(f"{'x' * 100}\n")


def takeovers(transcript: Transcript) -> list[str]:
    notes = [it.text for it in transcript.blocks if isinstance(it, Note)]
    return [it for it in notes if "took over" in it]


def test_a_takeover_names_the_call_that_was_taken_over() -> None:
    arguments = '{"cmd": "make all"}'
    written = TimedLog(RUN)
    written.add("start.main", begin("f"), at=0)
    written.add("model", answer(1, calls("exec_command", "c1", arguments)), at=1)
    tool = msgspec.structs.replace(
        asks("t1-0"), name="exec_command", call_id="c1", arguments=arguments
    )
    asked = written.add("call", tool, at=2)
    opened = written.add("call", asks("t1-open", kind="open"), at=3)
    first, second = "h:1:a", "h:2:b"
    answered = ends("t1-open", kind="open")
    written.add("result", answered, at=4, cause=opened, deliveries=2, worker=first)
    written.add("result", ends("t1-0"), at=5, cause=asked, deliveries=2, worker=second)
    written.add("model", answer(2, says("a")), at=6, cause=5, worker=first)
    written.add("model", answer(3, says("b")), at=7, cause=5, deliveries=2, worker=second)
    reader = RunReader(RUN)
    transcript = told(*(RunStep(turn=1, row=reader.feed(it)) for it in written.events))
    lost = "died or lost its lease"
    assert takeovers(transcript) == [
        f"h:1 took over the step open from a process that {lost}",
        f"h:2 took over $ make all from a process that {lost}",
        f"h:2 took over from h:1, which {lost}",
    ]
    assert transcript.took_over == "h:2"


def test_a_takeover_in_a_run_below_is_told() -> None:
    below = TimedLog("below")
    below.add("start.main", begin("f"), at=0)
    below.add("model", answer(1, says("a")), at=1, cause=1, deliveries=2, worker="h:2:b")
    reader = RunReader("below")
    rows = [reader.feed(it) for it in below.events]
    transcript = told(*(RunStep(turn=1, row=it, depth=1, name="research") for it in rows))
    assert takeovers(transcript) == [
        "h:2 took over from a process that died or lost its lease (in research)"
    ]


def test_a_takeover_is_news_until_the_next_turn() -> None:
    transcript = told(TurnBegan(turn=1, run=RUN))
    transcript.took_over = "other:1"
    transcript.take(TurnBegan(turn=1, run=RUN))  # read again after an outage
    assert transcript.took_over == "other:1"
    transcript.take(TurnBegan(turn=2, run="next"))
    assert transcript.took_over == ""


def test_the_reason_of_an_interrupt_is_told_once() -> None:
    why = "interrupted from the terminal UI"
    error = ErrorInfo(code="cancelled", message=why)
    stop = CancelRequested(reason=why)
    end = RunDone(status="cancelled", agent="a", error=error, turns=1, usage=TokenUsage())
    notes = [it.text for it in told(*steps([begin(), stop, end])).blocks if isinstance(it, Note)]
    assert notes == [f"stop requested: {why}", "ended as cancelled"]


def test_the_user_and_the_notes_are_told_in_order() -> None:
    transcript = told(*steps([begin(), answer(1, says("a"))]))
    assert [it.text for it in transcript.blocks if isinstance(it, UserText)] == ["hi"]
    assert not [it for it in transcript.blocks if isinstance(it, Note)]
    assert transcript.last_answer == "a"
