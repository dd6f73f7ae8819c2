"""What a command in a sandbox came to, from the text that its model is told."""

from __future__ import annotations

import re
from typing import NamedTuple

_ANSWER = re.compile(
    r"\AChunk ID: .*?^Process (?P<how>exited with code -?\d+|running with session ID \d+)$"
    r".*?^Output:\n(?P<output>.*)\Z",
    re.DOTALL | re.MULTILINE,
)


class CommandAnswer(NamedTuple):
    """The end of a command, or that it still runs."""

    how: str
    """``exit code 0``, or ``running with session ID 1``."""
    output: str

    @property
    def has_failed(self) -> bool:
        """Whether the command has ended with another exit code than 0."""
        return self.how.startswith("exit code ") and self.how != "exit code 0"


def command_answer(text: str) -> CommandAnswer | None:
    """The parts of a tool's answer; None if it is not the answer of a command."""
    found = _ANSWER.match(text)
    if found is None:
        return None
    return CommandAnswer(found["how"].replace("exited with code", "exit code"), found["output"])
