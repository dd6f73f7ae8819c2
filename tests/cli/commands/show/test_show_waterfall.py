"""The waterfall on terminals of all kinds: widths, colours, encodings, hostile names."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from sandstream_actors.tracing import semconv
from support.tracing.made_spans import MadeRun, at, timeline_of

from sandstream._inspect.axis import axis_of
from sandstream._inspect.timeline import Timeline
from sandstream.cli.commands.show.bars import bar_of
from sandstream.cli.commands.show.plain_screen import PlainScreen, page_screen
from sandstream.cli.commands.show.waterfall import waterfall_lines
from sandstream.cli.terminal.render import Screen, columns_of


def team(children: int = 20) -> Timeline:
    """A run that calls an agent many times, waits for a rate limit and a person, and fails."""
    run = MadeRun("run-1", "manager", 0, 9000, tokens=12_345, turns=3, status="failed")
    run.add("chat", "gpt-5", 10, 600, tokens=(410, 212))
    runs = [run]
    for number in range(children):
        start = 700 + 20 * number
        call = run.add(
            "tool",
            "research",
            start + 200,
            start + 900,
            queued=200,
            contents={semconv.TOOL_ARGUMENTS: f'{{"input":"topic {number}"}}'},
        )
        child = MadeRun(f"run-1_t1-{number}", "researcher", start + 210, start + 890, parent=call)
        child.add("chat", "gpt-5-mini", start + 220, start + 880, tokens=(50, 5))
        runs.append(child)
    tried = {semconv.RETRY_ATTEMPT: 1}
    run.add("chat", "gpt-5", 2500, 2600, error="429", error_message="Slow\ndown", attributes=tried)
    run.add("wait", "wait for the rate limit", 2600, 4600, attributes=tried)
    run.add("chat", "gpt-5", 4600, 5000, tokens=(900, 30), attributes={semconv.RETRIES: 1})
    decided = {semconv.APPROVAL_DECISION: "rejected", semconv.APPROVAL_BY: "ann"}
    run.add("approval", "approval refund", 5000, 8000, attributes=decided)
    run.add("tool", "\x1b[31mevil\x07 名前\n", 8100, 8900, error="boom")
    return timeline_of(*runs)


class Paper(io.TextIOWrapper):
    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding, newline="")

    @property
    def text(self) -> str:
        self.flush()
        raw: bytes = self.buffer.getvalue()  # type: ignore[attr-defined]
        return raw.decode(self.encoding)


def drawn(timeline: Timeline, monkeypatch: pytest.MonkeyPatch, width: int, **how: Any) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    return waterfall_lines(Screen(Paper()), timeline, root="run-1", **how)


@pytest.mark.parametrize("width", [60, 61, 80, 100, 137, 200])
@pytest.mark.parametrize("children", [2, 20])
def test_it_fits_every_terminal(monkeypatch: pytest.MonkeyPatch, width: int, children: int) -> None:
    lines = drawn(team(children), monkeypatch, width)
    assert max(map(columns_of, lines)) <= width
    assert not any("\x1b" in line or "\x07" in line or "\n" in line for line in lines)


def test_what_it_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(team(2), monkeypatch, 120)
    text = "\n".join(lines)
    assert re.match(r" +0 +2s +4s .* TOOK +TOKENS$", lines[0])
    assert re.match(r"manager .*━━.*~~~.*┄┄┄.* 9\.0s +12\.3k→1  failed 3 turns$", lines[1])
    assert re.search(r'├ research input="topic 0" +░░?━+╸? +700ms', text)
    assert re.search(r"│ └ researcher run-1_t1-0 +", text)
    assert re.search(r"│   └ chat gpt-5-mini +[▐▕█▌]", text)
    assert "│   ✗ 429: Slow down" in lines
    assert re.search(r"├ chat gpt-5 +.*900→30  1 retry", text)
    assert re.search(r"├ approval refund +.*┄┄┄┄.*rejected by ann", text)
    assert re.search(r"└ evil 名前 +.*\n    ✗ boom\n", text)
    assert lines[-2].startswith("█ work   ━ a whole with parts below it   ░ in a queue")


def test_many_equal_calls_are_one_line_unless_all_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = drawn(team(20), monkeypatch, 100)
    (place,) = [number for number, line in enumerate(lines) if "research ×20" in line]
    assert re.search(r"[▁▂▃▄▅▆▇]█+[▁▂▃▄▅▆▇].* 1000→100", lines[place])
    assert lines[place + 1] == "│   each 700ms · 700ms · 700ms (shortest, median, longest)"
    assert "▂▅▇ how many at a time" in "\n".join(lines[-2:])
    every = drawn(team(20), monkeypatch, 100, show_all=True)
    assert sum(line.startswith("├ research ") for line in every) == 20


def test_a_run_of_thousands_of_steps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    run = MadeRun("run-1", "looper", 0, 500_000)
    for number in range(5000):
        run.add("tool", "step", 100 * number, 100 * number + 100)
    lines = drawn(timeline_of(run), monkeypatch, 80)
    assert len(lines) < 250
    assert "├ ⋮ 4801 more rows (--all)" in lines
    assert len(drawn(timeline_of(run), monkeypatch, 80, show_all=True)) > 5000


def test_a_run_under_way_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    run = MadeRun("run-1", "writer", 0)
    run.add("chat", "gpt-5", 10, 500)
    run.add("tool", "search", 600)
    lines = drawn(timeline_of(run, now=2000), monkeypatch, 80)
    assert all(re.search(r"▸ .* running$", line) for line in (lines[1], lines[3]))
    assert "▸" not in lines[2]


def test_a_failure_is_told_where_it_happened_only(monkeypatch: pytest.MonkeyPatch) -> None:
    run = MadeRun("run-1", "writer", 0, 1000, status="failed")
    run.spans[0].error, run.spans[0].error_message = "model_http", "No such luck."
    run.add("chat", "gpt-5", 10, 500, error="400", error_message="No such luck.")
    text = "\n".join(drawn(timeline_of(run), monkeypatch, 80))
    assert text.count("No such luck.") == 1 and "✗ 400: No such luck." in text


def test_a_long_wait_is_drawn_short_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    run = MadeRun("run-1", "cashier", 0, 7_200_000)
    run.add("chat", "gpt-5", 0.001, 1000)
    run.add("approval", "approval refund", 1000, 7_199_000)
    run.add("tool", "refund", 7_199_000, 7_200_000)
    lines = drawn(timeline_of(run), monkeypatch, 80)
    assert re.match(r" +0 +0\.5s +/1h59m/ +\+0\.5s .*TOOK", lines[0])
    assert re.match(r"├ chat gpt-5 +█{12,}", lines[2]) and re.match(
        r"└ refund +[▐▕]?█{12,}", lines[4]
    )
    assert "/…/ a long wait drawn short" in "\n".join(lines[-2:])


def test_nothing_is_drawn_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(timeline_of(), monkeypatch, 80) == []


# --- bars -----------------------------------------------------------------------------------------


def bar(width: int, start: float, end: float, **more: Any) -> str:
    """A bar on an axis of 1000 ms."""
    run = MadeRun("run-1", "writer", 0, 1000)
    run.add("tool", "search", start, end, **more)
    timeline = timeline_of(run)
    return "".join(char for char, _ in bar_of(timeline.rows[1], axis_of(timeline), width).columns)


def test_bars_are_as_exact_as_blocks_can_be() -> None:
    assert bar(10, 0.001, 1000) == "██████████"
    assert bar(10, 200, 500) == "  ███     "
    assert bar(10, 200, 525) == "  ███▎    "
    assert bar(10, 250, 500) == "  ▐██     "
    assert bar(10, 200, 500, queued=100) == " ░███     "
    assert bar(10, 500, 500.1) == "     ▏    "
    assert bar(10, 1000, 1000) == "         ▏"
    assert bar(10, 600, 601, queued=500) == " ░░░░░▏   "


def test_a_bar_has_the_width_it_is_given_and_the_colour_of_its_end() -> None:
    timeline = team(2)
    axis = axis_of(timeline)
    for row in timeline.rows:
        columns = bar_of(row, axis, 40).columns
        assert len(columns) == 40
        if row.error:
            assert "red" in {style for _, style in columns}
    assert timeline.start_ns == at(0)


# --- terminals ------------------------------------------------------------------------------------


def test_colour_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    screen = Screen(Paper())
    screen.has_colour = True
    painted = waterfall_lines(screen, team(), root="run-1")
    plain = waterfall_lines(Screen(Paper()), team(), root="run-1")
    assert "\x1b[31m" in "".join(painted) and "\x1b" not in "".join(plain)
    bare = [re.sub(r"\x1b\[[0-9;]*m", "", line).replace("┊", " ").rstrip() for line in painted]
    assert bare == plain


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_what_a_terminal_cannot_show_has_signs_of_ascii(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    paper = Paper(encoding)
    monkeypatch.setattr("sys.stdout", paper)
    monkeypatch.setenv("COLUMNS", "100")
    screen = page_screen()
    assert isinstance(screen, PlainScreen)
    for line in waterfall_lines(screen, team(2), root="run-1"):
        screen.line(line)
    assert re.search(r"manager .*===.*~~~.*---.* 9\.0s +12\.3k>1  failed 3 turns", paper.text)
    assert re.search(r'\+ research input="topic 0" +\.\.?=+ ', paper.text)
    assert "! boom" in paper.text and paper.text.rstrip().isascii()


def test_what_can_show_all_signs_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Paper())
    assert not isinstance(page_screen(), PlainScreen)
