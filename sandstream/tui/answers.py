"""Answers to the questions of agents: the panel that shows a question, and how it is decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from sandstream._inspect.rows import Call
from sandstream._inspect.trees import address_of
from sandstream.approvals import OpenApproval
from sandstream.client import Client
from sandstream.tui.conversation.call_text import bounded, details, title
from sandstream.tui.keys import bindings
from sandstream.tui.plain_text import line, text

AnswerKey = Literal["a", "A", "r", "R"]
SEEN_S = 0.5
"""So long a question must have been shown before a key answers it. A key that is pressed just when
the question appears, or takes the place of another, was meant for something else.
"""
_MOST_LINES = 12


async def answer(
    client: Client, question: OpenApproval, key: AnswerKey, *, by: str, reason: str | None = None
) -> str:
    """Decide on a question.

    Args:
        client: The connection.
        question: What is asked.
        key: ``a`` or ``A`` allow, ``r`` or ``R`` reject; a capital letter decides later calls too.
        by: The person who decides, for the log.
        reason: What the model is told about a rejection; ``None``: a default text.

    Returns:
        What was done, for people.

    Raises:
        UserError: Another person decided first, or the call no longer waits.
    """
    run, call = await address_of(client.bus, question.root_run, question.run_id, question)
    always = key.isupper()
    if key in "aA":
        await client.approve(run, call, always=always, by=by)
    else:
        await client.reject(run, call, always=always, by=by, message=reason)
    what = "allowed" if key in "aA" else "rejected"
    return f"{question.tool} {what}{', also from now on' if always else ''}"


class Readiness:
    """Whether the question that is shown may be answered by a key.

    Args:
        widget: The widget that shows it.
        changed: Is called when it may be answered from now on.
    """

    def __init__(self, widget: Widget, changed: Callable[[], None]) -> None:
        self.is_ready = False
        self._widget = widget
        self._changed = changed
        self._shown: tuple[str, str] | None = None

    def show(self, question: OpenApproval | None, *, is_wanted: bool = False) -> None:
        """Another question may be shown from now on.

        Args:
            question: The question that is shown; None: none is.
            is_wanted: The person has chosen it.
        """
        shown = (question.run_id, question.call) if question is not None else None
        if shown != self._shown:
            self._shown = shown
            self.is_ready = is_wanted
            self._widget.set_timer(SEEN_S, lambda: self._seen(shown))

    def _seen(self, shown: tuple[str, str] | None) -> None:
        if shown == self._shown and not self.is_ready:
            self.is_ready = True
            self._changed()


def question_content(
    question: OpenApproval, place: int = 0, count: int = 1, *, is_ready: bool = True
) -> Content:
    """A question as it is shown: who wants to do what, and the keys once they answer it."""
    call = Call(name=question.tool, arguments=question.arguments)
    which = f" ({place + 1} of {count})" if count > 1 else ""
    body = bounded(details(call), _MOST_LINES)
    expires = f"  expires after {question.expires_s:g} s" if question.expires_s else ""
    return Content.assemble(
        ("? ", "bold $warning"),
        line(question.agent, "bold"),
        (f" asks to run{which}", ""),
        (expires, "$warning"),
        "\n",
        line(title(call), "bold $foreground"),
        text("\n" + body if body and body != title(call) else "", "$foreground 80%"),
        "\n",
        _KEYS if is_ready else ("…", "dim"),
    )


_KEYS = Content.assemble(
    ("a", "bold $success"),
    (" allow  ", "dim"),
    ("A", "bold $success"),
    (" always  ", "dim"),
    ("r", "bold $error"),
    (" reject  ", "dim"),
    ("R", "bold $error"),
    (" always  ", "dim"),
    ("m", "bold $error"),
    (" reject with a reason", "dim"),
)


_ANSWERS = frozenset("aArRmjk")


class QuestionPanel(Static, can_focus=True):
    """The open questions of one session or run, one at a time. It posts the answers."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("question")

    class Answered(Message):
        """A person has decided."""

        def __init__(self, question: OpenApproval, key: AnswerKey) -> None:
            super().__init__()
            self.question = question
            self.key = key

    class Reasoned(Message):
        """A person wants to reject with a reason."""

        def __init__(self, question: OpenApproval) -> None:
            super().__init__()
            self.question = question

    class Left(Message):
        """The person goes back to the input; ``character`` was typed."""

        def __init__(self, character: str = "") -> None:
            super().__init__()
            self.character = character

    def __init__(self) -> None:
        super().__init__("", id="questions", markup=False)
        self.questions: list[OpenApproval] = []
        self._place = 0
        self._readiness = Readiness(self, self._show)
        self._is_left = False
        """What is typed from now on belongs to the input, which gets the focus in a moment."""

    @property
    def current(self) -> OpenApproval | None:
        """The question that is shown."""
        return self.questions[self._place] if self.questions else None

    def put(self, questions: list[OpenApproval]) -> None:
        """Show these questions.

        Args:
            questions: The open ones, the oldest first.
        """
        shown = self.current
        self.questions = questions
        places = {(it.run_id, it.call): place for place, it in enumerate(questions)}
        known = places.get((shown.run_id, shown.call)) if shown else None
        self._place = known if known is not None else 0
        self.display = bool(questions)
        self._show()

    def _show(self) -> None:
        self._readiness.show(self.current)
        if self.current is not None:
            count, is_ready = len(self.questions), self._readiness.is_ready
            self.update(question_content(self.current, self._place, count, is_ready=is_ready))

    def action_step(self, step: int) -> None:
        if self.questions:
            self._place = (self._place + step) % len(self.questions)
            self._readiness.show(self.current, is_wanted=True)
            self._show()

    def action_answer(self, key: AnswerKey) -> None:
        if self.current is not None:
            self.post_message(self.Answered(self.current, key))

    def action_reason(self) -> None:
        if self.current is not None:
            self.post_message(self.Reasoned(self.current))

    def action_dismiss_focus(self) -> None:
        self.post_message(self.Left())

    def on_focus(self) -> None:
        self._is_left = False

    def on_key(self, event: events.Key) -> None:
        """A message that begins with another character, or that was begun before the question could
        be read, goes to the input as a whole.
        """
        if not event.is_printable or not event.character:
            return
        is_answer = event.character in _ANSWERS and self._readiness.is_ready
        if self._is_left or not is_answer:
            self._is_left = True
            event.stop()
            self.post_message(self.Left(event.character))
