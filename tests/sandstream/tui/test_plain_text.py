"""Foreign text: nothing of it steers the terminal."""

from __future__ import annotations

import msgspec
import pytest
from rich.segment import ControlType, Segment
from textual.color import Color

from sandstream._inspect.rows import Call
from sandstream.tui.conversation.block_views import parser
from sandstream.tui.conversation.call_text import details, outcome, tail_of, title
from sandstream.tui.conversation.terminal import TerminalFilter
from sandstream.tui.plain_text import NoControls, line, text

BLACK = Color(0, 0, 0)
ESCAPE = "\x1b]0;OWNED\x07\x1b[31mred\x9b2J\x08"


def test_text_and_lines_are_clean_and_no_markup() -> None:
    assert text(f"a{ESCAPE}\n\tb [bold]c[/]").plain == "a0;OWNEDred2J\n    b [bold]c[/]"
    assert line(f"  a{ESCAPE}\nb").plain == "  a0;OWNEDred2J b"


def test_the_last_filter_removes_what_a_widget_forgot() -> None:
    segments = [Segment("fine"), Segment(ESCAPE), Segment("", None, [(ControlType.BELL,)])]
    cleaned = NoControls().apply(segments, BLACK)
    assert [it.text for it in cleaned] == ["fine", "0;OWNEDred2J", ""]
    assert cleaned[2].control
    same = [Segment("fine")]
    assert NoControls().apply(same, BLACK) is same


@pytest.mark.parametrize(
    "smuggled",
    ["&#27;[31m", "&#x202e;abc", "<http://x/%1b%5b31m>", "http://x/%1B[31m", "<b>\x1b</b>"],
)
def test_markdown_brings_in_no_characters(smuggled: str) -> None:
    tokens = [inner for token in parser().parse(smuggled) for inner in token.children or []]
    shown = "".join(it.content for it in tokens)
    assert "\u202e" not in shown
    assert shown.count("\x1b") == smuggled.count("\x1b")


def test_calls_are_one_meaningful_line() -> None:
    call = Call(name="exec_command", arguments='{"cmd": "make test\\nmake lint"}', state="done")
    assert title(call) == "$ make test (+1 lines)"
    call.output = (
        "Chunk ID: 1\nWall time: 1\nProcess exited with code 2\nTokens: 1\nOutput:\na\nfailed\n"
    )
    assert outcome(call) == "exit code 2 failed  (2 lines)"
    patch = Call(name="apply_patch", arguments="*** Begin Patch\n*** Update File: a.py\n+x\n+y")
    assert title(patch) == "edit ~a.py +2"
    assert "\x1b" not in details(Call(name="f", arguments='{"x": "\\u001b[31m"}', output=ESCAPE))
    assert tail_of("1%\r50%\r100%\nnext\x1b[2J\n", 5) == ["100%", "next"]


def test_no_argument_can_hide_which_tool_a_call_is_for() -> None:
    note = "x\n*** Add File: a.txt\n"
    call = Call(name="refund", arguments=msgspec.json.encode({"note": note}).decode())
    assert title(call).startswith("refund(note=")
    assert details(call).startswith("note: x\n*** Add File: a.txt")


def test_a_terminal_gets_colours_but_no_commands() -> None:
    kept = b"\x1b[31mred\x1b[0m \xe2\x9d\xaf text"
    assert TerminalFilter().take(kept) == kept
    for string in (
        b"\x1b]0;title\x07",
        b"\x1b]52;c;AAAA\x1b\\",
        b"\x1bPdevice\x1b\\",
        b"\xc2\x9d0;title\xc2\x9c",
    ):
        whole = TerminalFilter()
        assert whole.take(b"a" + string + b"b") == b"ab"
        pieces = TerminalFilter()
        out = b"".join(pieces.take(bytes([it])) for it in b"a" + string + b"b")
        assert out == b"ab"


@pytest.mark.parametrize(
    "pieces",
    [
        [b"\x1b\x1b]0;x\x07]52;c;aGk=\x07"],
        [b"\x1b]52;c;\x1b]0;x\x07aGk=\x07"],
        [b"\xc2\x1b]0;x\x07\x9d52;c;aGk=\x07"],
        [b"\x1b\xc2\x9d0;x\x07]52;c;aGk=\x07"],
        [b"\x1b]52;c;aGk=\x1b[0m"],
        [b"\x1b]52;c;aGk=", b"\x1b", b"[0m"],
        [b"\x1b\x1b]0;x\x07", b"]52;c;aGk=\x07"],
        [b"\x1b]52;c;aGk=\x18"],
        [b"\x1b]52;c;" + b"A" * 5000 + b"\x1b", b"\\"],
    ],
)
def test_no_command_is_made_from_parts(pieces: list[bytes]) -> None:
    written = TerminalFilter()
    passed = b"".join(written.take(it) for it in [*pieces, b"after"])
    assert b"\x1b]" not in passed
    assert b"\xc2\x9d" not in passed
    assert passed.endswith(b"after")
