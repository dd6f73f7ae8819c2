"""The peek panel of the list: what the selected session or run said, asks and waits for, and a
line to reply without opening it.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from sandstream._inspect.texts import count
from sandstream._inspect.visible_text import one_line
from sandstream.approvals import OpenApproval
from sandstream.sessions import SessionInfo
from sandstream.tui.answers import Readiness, question_content
from sandstream.tui.overview.entries import Entry, unmarked
from sandstream.tui.overview.rows import age
from sandstream.tui.plain_text import line
from sandstream.tui.theme import MARKS, STYLES


class Peek(Vertical):
    """Shows one entry of the list."""

    class Replied(Message):
        """A person has typed a reply."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__(id="peek")
        self.question: OpenApproval | None = None
        """The question that is shown."""
        self.entry: Entry | None = None
        self._shown: tuple[SessionInfo | None, list[OpenApproval]] = (None, [])
        self._readiness = Readiness(self, self._show)

    @property
    def answerable(self) -> OpenApproval | None:
        """The question, once a person has had the time to see it."""
        return self.question if self._readiness.is_ready else None

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="peek-body", can_focus=False):
            yield Static("", id="peek-text", markup=False)
        yield Input(placeholder="Reply (t), Enter sends", id="reply")

    def put(
        self, entry: Entry | None, info: SessionInfo | None, questions: list[OpenApproval]
    ) -> None:
        """Show an entry.

        Args:
            entry: The selected one; None: none is.
            info: Its state, if it is a session.
            questions: What it asks, the oldest first.
        """
        self.entry = entry
        self.question = questions[0] if questions else None
        self._shown = (info, questions)
        self._readiness.show(self.question)
        self._show()

    def _show(self) -> None:
        shown = line("nothing is selected", "dim")
        if self.entry is not None:
            shown = peek_content(self.entry, *self._shown, is_ready=self._readiness.is_ready)
        self.query_one("#peek-text", Static).update(shown)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value.strip():
            self.post_message(self.Replied(event.value.strip()))
            event.input.clear()


def peek_content(
    entry: Entry, info: SessionInfo | None, questions: list[OpenApproval], *, is_ready: bool
) -> Content:
    """What the panel shows of an entry. ``is_ready``: keys answer the first question."""
    style = STYLES.get(entry.state, "")
    is_doing = bool(entry.doing) and (info is None or bool(info.doing) or info.active is not None)
    id = entry.id if entry.kind == "run" and entry.id != entry.title else ""
    facts = [id, entry.agent, entry.provider, f"{count(entry.tokens)} tokens", age(entry.changed)]
    parts: list[Content | str] = [
        line(entry.title, "bold $primary"),
        "\n",
        Content.styled(f"{MARKS.get(entry.state, '·')} {entry.state}", style),
        line(f"  {entry.doing}" if is_doing else "", "$foreground 80%"),
        "\n",
        line(" · ".join(it for it in facts if it), "dim"),
    ]
    if info is not None and info.origin is not None:
        parts += ["\n", line(f"fork of {info.origin.session}, turn {info.origin.turn}", "dim")]
    if info is not None and info.said:
        parts += ["\n\n", line(unmarked(info.said))]
    for it in info.queue if info is not None else ():
        parts += ["\n", line(f"⧗ {one_line(it.input)}", "$warning")]
    for place, question in enumerate(questions[:3]):
        is_first = is_ready and place == 0
        parts += ["\n\n", question_content(question, place, len(questions), is_ready=is_first)]
    return Content.assemble(*parts)
