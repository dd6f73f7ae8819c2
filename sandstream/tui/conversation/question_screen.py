"""A screen with a panel of questions: it takes the answers, and tells what went wrong."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandstream_bus.errors import SandstreamError
from textual import work
from textual.screen import Screen

from sandstream._inspect.visible_text import one_line
from sandstream.approvals import OpenApproval
from sandstream.exceptions import AgentsException
from sandstream.sandbox.errors import SandboxError
from sandstream.tui.answers import AnswerKey, QuestionPanel, answer
from sandstream.tui.conversation.prompt import Prompt
from sandstream.tui.conversation.slash import SlashError
from sandstream.tui.desk import Desk
from sandstream.tui.dialogs import TextDialog

if TYPE_CHECKING:
    from sandstream.tui.app import SandstreamApp

PEOPLE_ERRORS = (SandstreamError, AgentsException, SandboxError, SlashError, TimeoutError)
"""Errors that are told to the person; all others are bugs."""


_PREFIX = re.compile(r"^session \S+: ")
"""The person sees which session it is."""


class QuestionScreen(Screen[None]):
    """Answers the questions of a session or run.

    Args:
        desk: The data of the app.
    """

    app: SandstreamApp

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self.desk = desk
        self._wants_focus = False
        """A new question takes the focus as soon as the person does not type."""

    def complain(self, error: BaseException) -> None:
        """Tell the person what went wrong.

        Args:
            error: One of ``PEOPLE_ERRORS``.
        """
        text = _PREFIX.sub("", one_line(str(error))) or type(error).__name__
        self.notify(text[:500], severity="error", timeout=8, markup=False)

    def on_question_panel_answered(self, event: QuestionPanel.Answered) -> None:
        self.decide(event.question, event.key)

    @work(group="answer")
    async def decide(
        self, question: OpenApproval, key: AnswerKey, reason: str | None = None
    ) -> None:
        """Answer a question of an agent.

        Args:
            question: What is asked.
            key: The answer, as ``answers.answer`` knows it.
            reason: What the model is told about a rejection.
        """
        try:
            done = await answer(self.desk.client, question, key, by=self.desk.by, reason=reason)
        except PEOPLE_ERRORS as error:
            self.complain(error)
        else:
            self.notify(done, markup=False)
        self.desk.refresh()

    def on_question_panel_reasoned(self, event: QuestionPanel.Reasoned) -> None:
        self._reason(event.question)

    @work(group="answer")
    async def _reason(self, question: OpenApproval) -> None:
        dialog = TextDialog(f"Why is {question.tool} rejected? The model is told.")
        reason = await self.app.push_screen_wait(dialog)
        if reason is not None:
            self.decide(question, "r", reason or None)

    def on_question_panel_left(self, event: QuestionPanel.Left) -> None:
        self._wants_focus = False
        prompt = self.query_one(Prompt)
        prompt.focus()
        if event.character:
            prompt.insert(event.character)
