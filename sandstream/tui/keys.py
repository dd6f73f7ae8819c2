"""All keys of the terminal UI in one table: screens make their bindings of it, the help screen and
docs/tui.md show it, and ``[keys]`` in the settings file changes it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from textual.binding import Binding, BindingType

Place = Literal["everywhere", "list", "session", "question", "queue", "turns"]
PLACES: dict[Place, str] = {
    "everywhere": "Everywhere",
    "list": "List of sessions and runs",
    "session": "Session or run",
    "question": "Question of an agent (panel, peek and inbox)",
    "queue": "Queue of waiting messages",
    "turns": "Rewind and fork",
}


class Key(NamedTuple):
    """A key and what it does."""

    place: Place
    keys: str
    """As Textual names them, with commas between them."""
    shown: str
    """As people read it."""
    action: str
    """The action of the screen; also the name in ``[keys]``."""
    does: str
    in_footer: str = ""
    """The word for the footer; empty: the footer does not show it."""


KEYS: tuple[Key, ...] = (
    Key("everywhere", "ctrl+p", "Ctrl+P", "command_palette", "open the command palette"),
    Key("everywhere", "f1", "F1, ?", "help", "show this help", "Help"),
    Key("everywhere", "ctrl+q", "Ctrl+Q", "quit", "leave; all work continues"),
    Key("everywhere", "f2", "F2", "inbox", "open the inbox of all questions", "Inbox"),
    Key("everywhere", "f3", "F3", "next_theme", "use the next theme"),
    Key("everywhere", "ctrl+y", "Ctrl+Y", "copy", "copy the selected text, or the last answer"),
    Key("list", "enter,right,l", "Enter, →", "open", "open the session or run", "Open"),
    Key("list", "j,down", "↓, j", "move(1)", "go to the next line"),
    Key("list", "k,up", "↑, k", "move(-1)", "go to the line before"),
    Key("list", "space", "Space", "peek", "show or hide the peek panel", "Peek"),
    Key("list", "t", "t", "reply", "reply from the peek panel"),
    Key("list", "n", "n", "new", "start a session", "New"),
    Key("list", "slash", "/", "filter", "filter by text", "Filter"),
    Key("list", "f", "f", "fork", "fork the session"),
    Key("list", "ctrl+r", "Ctrl+R", "rename", "rename the session"),
    Key("list", "x", "x", "stop", "interrupt the turn, or cancel the run"),
    Key("list", "D", "D", "destroy", "destroy the session, after a question"),
    Key("list", "e", "e", "archive", "archive the session: hide it until its next message"),
    Key("list", "s", "s", "group", "group by state, agent or provider"),
    Key("list", "question_mark", "?", "help", "show this help"),
    Key("list", "escape", "Esc", "close", "close the filter or the peek panel"),
    Key("list", "q", "q", "quit", "leave; all work continues", "Quit"),
    Key(
        "session", "enter", "Enter", "send", "send the message; it waits while a turn works", "Send"
    ),
    Key(
        "session", "shift+enter,ctrl+j,alt+enter", "Shift+Enter, Ctrl+J", "newline", "begin a line"
    ),
    Key(
        "session",
        "tab",
        "Tab",
        "complete",
        "take the completion, else send the message to the queue",
    ),
    Key(
        "session",
        "up,down",
        "↑, ↓",
        "history",
        "earlier and later messages, at the edge of the input",
    ),
    Key("session", "escape", "Esc", "escape", "interrupt the turn", "Interrupt"),
    Key(
        "session",
        "escape escape",
        "Esc Esc",
        "rewind",
        "empty input, no turn at work: rewind or fork",
    ),
    Key("session", "left", "←", "back", "empty input: back to the list; work continues", "List"),
    Key("session", "ctrl+c", "Ctrl+C", "clear", "clear the input, else interrupt; twice: leave"),
    Key("session", "alt+up", "Alt+↑", "block(-1)", "select the block above"),
    Key("session", "alt+down", "Alt+↓", "block(1)", "select the block below"),
    Key("session", "space", "Space", "fold", "a block is selected: unfold or fold it"),
    Key("session", "ctrl+o", "Ctrl+O", "details", "unfold or fold all calls", "Details"),
    Key("session", "pageup", "PgUp", "scroll_up", "scroll up"),
    Key("session", "pagedown", "PgDn", "scroll_down", "scroll down"),
    Key("session", "ctrl+home", "Ctrl+Home", "scroll_top", "go to the first block"),
    Key("session", "ctrl+end", "Ctrl+End", "scroll_end", "go to the last block and follow"),
    Key("session", "ctrl+f", "Ctrl+F", "search", "search the transcript; Enter finds the next"),
    Key("session", "ctrl+g", "Ctrl+G", "editor", "write the message in $EDITOR"),
    Key("session", "ctrl+t", "Ctrl+T", "terminal", "open a terminal in the sandbox", "Terminal"),
    Key("session", "ctrl+b", "Ctrl+B", "queue", "edit the messages that wait"),
    Key("session", "f4", "F4", "diff", "show the files that turns changed"),
    Key("question", "a", "a", "answer('a')", "allow this call", "Allow"),
    Key(
        "question",
        "A",
        "A",
        "answer('A')",
        "allow this call and later ones of this tool in this turn",
    ),
    Key("question", "r", "r", "answer('r')", "reject this call", "Reject"),
    Key(
        "question",
        "R",
        "R",
        "answer('R')",
        "reject this call and later ones of this tool in this turn",
    ),
    Key("question", "m", "m", "reason", "reject this call with a reason"),
    Key("question", "j,down", "↓, j", "step(1)", "go to the next question"),
    Key("question", "k,up", "↑, k", "step(-1)", "go to the question before"),
    Key("question", "escape,tab", "Esc, Tab", "dismiss_focus", "back to the input"),
    Key("queue", "enter", "Enter", "edit", "edit the message", "Edit"),
    Key("queue", "d,delete", "d", "remove", "remove the message", "Remove"),
    Key("queue", "escape", "Esc", "close", "close", "Close"),
    Key(
        "turns", "enter", "Enter", "rewind", "rewind to this turn: conversation and files", "Rewind"
    ),
    Key("turns", "f", "f", "fork", "fork from this turn", "Fork"),
    Key("turns", "d", "d", "diff", "show what this turn changed", "Diff"),
    Key("turns", "escape", "Esc", "close", "close", "Close"),
)
"""The order is that of the help screen."""


_NAMES = {
    "move(1)": "next",
    "move(-1)": "previous",
    "block(1)": "next_block",
    "block(-1)": "previous_block",
    "step(1)": "next",
    "step(-1)": "previous",
    "answer('a')": "allow",
    "answer('A')": "allow_always",
    "answer('r')": "reject",
    "answer('R')": "reject_always",
}
_FIXED = {
    *("session.send", "session.newline", "session.complete", "session.history", "session.escape"),
    *("session.rewind", "session.back", "session.fold", "everywhere.command_palette"),
}
"""The meaning of these keys depends on what is typed."""


_FIRST = {"copy", "clear", "scroll_up", "scroll_down"}
"""Keys that the input would take for itself."""


def name_of(key: Key) -> str:
    """The name of a key in the settings file; empty: it cannot be changed.

    Args:
        key: The key.
    """
    name = f"{key.place}.{_NAMES.get(key.action, key.action)}"
    return "" if name in _FIXED else name


def bindings(place: Place, *actions: str) -> list[BindingType]:
    """The bindings of a screen or widget.

    Args:
        place: Where the keys work.
        actions: Only these; none: all of the place.
    """
    return [
        Binding(
            it.keys,
            it.action,
            it.in_footer or it.does,
            show=bool(it.in_footer),
            key_display=it.shown.split(",")[0],
            id=name_of(it) or None,
            priority=it.action in _FIRST,
        )
        for it in KEYS
        if it.place == place and " " not in it.keys and (not actions or it.action in actions)
    ]
