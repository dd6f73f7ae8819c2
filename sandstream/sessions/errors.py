"""The errors of durable sessions. Each has a ``code`` that never changes."""

from __future__ import annotations

from sandstream_bus.wire.message_base import ErrorInfo

from sandstream.exceptions import AgentsException, UserError


class SessionNotFound(UserError):
    """The log has no session with this id.

    Args:
        session: The id that was looked for.
    """

    code = "session_not_found"

    def __init__(self, session: str) -> None:
        super().__init__(f"there is no session {session!r}; `sandstream sessions` lists all")
        self.session = session


class SessionRefused(AgentsException):
    """The sessions actor looked at the request and refused it. The session is unchanged.

    Args:
        session: The session.
        kind: What was asked for, such as ``send`` or ``rewind``.
        error: Why not. Its code becomes the code of the exception.

    Example:
        try:
            await session.rewind(17)
        except SessionRefused as error:
            print(error.code, error)
    """

    code = "session_refused"

    def __init__(self, session: str, kind: str, error: ErrorInfo) -> None:
        super().__init__(f"session {session}: {kind} was refused: {error.message}")
        self.session = session
        self.kind = kind
        self.code = error.code
        self.reason = error.message


class SessionUnanswered(UserError):
    """The request is stored, but no sessions actor has taken it yet. It takes effect later.

    Args:
        message: What was asked for, and what to do.
    """

    code = "session_unanswered"


class MessageGone(AgentsException):
    """A message was removed from the queue, or its session ended, before a turn took it.

    Args:
        session: The session.
        message_id: The id of the message.
    """

    code = "message_gone"

    def __init__(self, session: str, message_id: str) -> None:
        super().__init__(
            f"message {message_id} of session {session} was removed before a turn took it"
        )
        self.session = session
        self.message_id = message_id


class TurnFailed(AgentsException):
    """A turn ended without an answer: it failed, was interrupted, or reached a limit.

    Args:
        session: The session.
        turn: The number of the turn.
        status: How the turn ended: ``failed``, ``cancelled``, ``max_turns``, ``guardrail`` or
            ``budget``.
        error: Why; ``None`` if the run gave no reason. Its code becomes that of the exception.
    """

    code = "turn_failed"

    def __init__(self, session: str, turn: int, status: str, error: ErrorInfo | None) -> None:
        why = f": {error.message}" if error is not None else ""
        super().__init__(f"turn {turn} of session {session} ended as {status}{why}")
        self.session = session
        self.turn = turn
        self.status = status
        self.code = error.code if error is not None else status
        self.reason = error.message if error is not None else ""
