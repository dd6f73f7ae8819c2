"""The blocks of a transcript, as data. Texts in them are foreign: the widgets clean them."""

from __future__ import annotations

from typing import Literal

import msgspec
from sandstream_bus.wire.sessions import SessionTurn

from sandstream._inspect.rows import Call

Tone = Literal["", "good", "bad", "wait", "quiet"]
MOST_LIVE = 64 * 1024
"""How much of the live output of a command is kept, in characters."""


class Block(msgspec.Struct, kw_only=True, eq=False):
    """Base of the blocks. Later events change a block in place."""

    key: int
    """Its place in the transcript."""
    turn: int = 0
    """The turn of the session; 0: none."""
    depth: int = 0
    """How deep its run is below the one that is shown."""


class TurnHead(Block, kw_only=True, eq=False):
    """The line above a turn; it says how the turn ended once that is known."""

    run: str
    ended: SessionTurn | None = None


class UserText(Block, kw_only=True, eq=False):
    """What a person said."""

    text: str
    by: str = ""


class AgentText(Block, kw_only=True, eq=False):
    """What an agent said; ``is_live``: the model still writes it."""

    who: str
    text: str
    is_live: bool = False
    attempt: int = 1


class Thought(Block, kw_only=True, eq=False):
    """What a model thought."""

    text: str
    is_live: bool = False
    attempt: int = 1


class CallStep(Block, kw_only=True, eq=False):
    """A call of a tool, and what it came to."""

    call: Call
    live: str = ""
    """The end of its output so far, while it runs."""
    steps: list[str] = []
    """What the run below did, if the call started one."""
    is_own: bool = False
    """The person at this screen runs it: its output is shown without unfolding."""
    is_stopped: bool = False
    """Its run has ended without a result of it."""
    is_waiting: bool = False
    """A person is asked about it."""

    def hear(self, text: str) -> None:
        """Take in a piece of live output."""
        self.live = (self.live + text)[-MOST_LIVE:]


class Note(Block, kw_only=True, eq=False):
    """What happened between the words: a takeover, a handoff, a decision, an end."""

    text: str
    tone: Tone = ""


AnyBlock = TurnHead | UserText | AgentText | Thought | CallStep | Note
