"""What :meth:`DurableSession.follow` yields, in the order in which it happens."""

from __future__ import annotations

from typing import Literal

import msgspec
from sandstream_bus.wire.sessions import SessionTurn

from sandstream._inspect.rows import EventRow
from sandstream.sessions.views import SessionInfo

DeltaKind = Literal["text", "reasoning", "arguments"]
"""What a piece of a model's answer is a part of."""


class SessionChanged(msgspec.Struct, frozen=True, kw_only=True, tag="session.changed"):
    """The session has a new state. The first event of every follower is one of these."""

    info: SessionInfo
    """The session as it is now."""


class TurnBegan(msgspec.Struct, frozen=True, kw_only=True, tag="turn.began"):
    """The events of a turn follow."""

    turn: int
    """The number of the turn."""
    run: str
    """The run that takes it."""
    is_past: bool = False
    """Whether the turn had ended before the follower began."""


class RunStep(msgspec.Struct, frozen=True, kw_only=True, tag="run.step"):
    """A stored event of the turn's run, or of a run below it."""

    turn: int
    """The number of the turn."""
    row: EventRow
    """The event, with what the events before it tell about it."""
    depth: int = 0
    """How deep the run is below that of the turn; 0: the turn's own run."""
    name: str = ""
    """The tool that started the run below; empty for the turn's own run."""


class TextDelta(msgspec.Struct, frozen=True, kw_only=True, tag="text.delta"):
    """A piece of what the model says. It is not stored: the answer itself comes as a
    :class:`RunStep` with the whole text, which replaces all pieces.
    """

    turn: int
    """The number of the turn."""
    run: str
    """The run whose model says it."""
    model_turn: int
    """Which model call of the run it is."""
    attempt: int
    """Which try of that call. Pieces of an earlier try no longer count."""
    number: int
    """The place among the events of the try. A follower that joins late sees later ones only."""
    text: str
    """The text, as the model wrote it: clean it before it reaches a terminal."""
    kind: DeltaKind = "text"
    """What it is a part of: the answer, its reasoning, or the arguments of a call."""


class CommandOutput(msgspec.Struct, frozen=True, kw_only=True, tag="command.output"):
    """A piece of the output of a command that runs. It is not stored: the result comes as a
    :class:`RunStep`.
    """

    turn: int
    """The number of the turn."""
    run: str
    """The run whose command it is."""
    call: str
    """The id that the model gave the call."""
    stream: Literal["stdout", "stderr"]
    """Where the command wrote it."""
    text: str
    """The text; bytes that are not UTF-8 are replaced. Clean it before it reaches a terminal."""


class TurnEnded(msgspec.Struct, frozen=True, kw_only=True, tag="turn.ended"):
    """A turn is finished, and its checkpoint is taken."""

    turn: SessionTurn
    """The record of the turn."""


SessionEvent = SessionChanged | TurnBegan | RunStep | TextDelta | CommandOutput | TurnEnded
"""Everything that a follower of a session yields."""
