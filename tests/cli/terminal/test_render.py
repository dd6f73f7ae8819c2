"""Widths, numbers, tables: without a terminal."""

from __future__ import annotations

import io

import pytest

from sandstream._inspect.texts import call_text, count, value_text
from sandstream.cli.terminal import render
from sandstream.cli.terminal.render import Cell, Column, Screen


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("hello", 5, "hello"),
        ("hello", 4, "hel…"),
        ("日本語です", 7, "日本語…"),
        ("日本語です", 10, "日本語です"),
        ("e\u0301a", 2, "e\u0301a"),
        ("a b c", 3, "a…"),
        ("abc", 0, "…"),
    ],
)
def test_shorten(text: str, width: int, expected: str) -> None:
    assert render.shorten(text, width) == expected


def test_foreign_text_is_harmless() -> None:
    assert render.one_line("a\x1b[2J\x1b]0;title\x07b\r\n\tc\x9b31m") == "a0;titleb c31m"
    assert render.clean("a\nb\x00\x1b[31m") == "a\nb"


def test_nothing_but_colours_gets_to_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen(Terminal())
    screen.has_colour = True
    screen.line(screen.paint("ours", "red") + " \x1b[2J\x1b]0;t\x07\x9b1m\x00\u202etheirs")
    assert screen.stream.getvalue() == "\x1b[31mours\x1b[0m 0;t1m\\u202etheirs\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "-"),
        (0, "0ms"),
        (0.0123, "12ms"),
        (0.9999, "1.0s"),
        (59.9, "59.9s"),
        (59.99, "1m00s"),
        (3599.7, "1h00m"),
        (90_000, "25h00m"),
        (200_000, "2d"),
    ],
)
def test_duration(seconds: float | None, expected: str) -> None:
    assert render.duration(seconds) == expected


def test_counts_and_sizes() -> None:
    assert [count(number) for number in (0, 9999, 12_345, 4_560_000)] == [
        "0",
        "9999",
        "12.3k",
        "4.56M",
    ]
    assert [render.size(number) for number in (0, 1500, 2_000_000, 84e9)] == [
        "0 B",
        "1.5 kB",
        "2 MB",
        "84 GB",
    ]


def test_times_of_the_server() -> None:
    start, end = "2026-11-16T07:26:21.123456789Z", "2026-11-16T07:26:22.623456789Z"
    assert render.seconds_between(start, end) == pytest.approx(1.5)
    assert render.seconds_between("nonsense", end) is None
    assert render.clock("nonsense") == "--:--:--"


def test_a_table_fits_and_lines_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    screen = Screen(io.StringIO())
    columns = [Column("ID"), Column("N", ">"), Column("TEXT", shrinks=5)]
    rows = [
        [Cell("a", "red"), Cell("1"), Cell("short")],
        [Cell("日本"), Cell("1000"), Cell("a long text\nthat does not fit at all")],
    ]
    lines = render.table(screen, columns, rows)
    assert lines == [
        "ID       N  TEXT",
        "a        1  short",
        "日本  1000  a long text that…",
    ]
    assert max(map(render.columns_of, lines)) <= 30


def test_a_narrow_table_leaves_columns_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "16")
    columns = [Column("ID"), Column("FIRST", drops=1), Column("SECOND", drops=2)]
    rows = [[Cell("abcdef"), Cell("x"), Cell("y")]]
    assert render.table(Screen(io.StringIO()), columns, rows) == ["ID      FIRST", "abcdef  x"]


def test_calls_and_values_as_text() -> None:
    assert call_text("f", '{"a":1,"b":"x"}') == 'f(a=1, b="x")'
    assert call_text("f", "") == "f()"
    assert call_text("f", "{broken") == "f({broken)"
    assert call_text("f", "[1]") == "f([1])"
    assert value_text([{"type": "input_text", "text": "a"}, {"type": "input_image"}]) == "a [image]"
    assert value_text({"a": 1}) == '{"a":1}'
