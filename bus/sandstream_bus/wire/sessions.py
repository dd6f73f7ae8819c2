"""The messages about sessions: what people ask for, the state of a session, its finished turns.

A session has one agent, one conversation, one workspace and a queue of messages. Requests are
published to ``<p>.ask.<user>.session.<session>.<kind>``; the state and the turns are in the log,
below ``<p>.session.<session>``.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Raw

from sandstream_bus.wire.message_base import ErrorInfo, Message
from sandstream_bus.wire.messages import DoneStatus
from sandstream_bus.wire.model_records import TokenUsage
from sandstream_bus.wire.spec_base import NO_JSON, Spec

IDLE_S = 300.0
"""How long a workspace stays open without work, unless a session says otherwise."""
MAX_QUEUED = 100
"""The most messages that may wait in a session."""
MAX_TEXT_BYTES = 256 * 1024
"""The most bytes of one message."""
MAX_QUEUED_BYTES = 4 * 1024 * 1024
"""The most bytes of all waiting messages together."""
MAX_SEEN = 200
"""How many ids of messages a state remembers."""
MAX_REFUSED = 50
"""How many refused requests a state remembers."""

TakePolicy = Literal["all", "one"]
"""Whether a turn takes all waiting messages together, or only the first."""


# --- requests -------------------------------------------------------------------------------------


class Request(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Base of the requests. The subject names the kind, so there is no tag. Unknown fields are
    refused: people write requests by hand, and a misspelt setting would have no effect.
    """


class CreateSession(Request, frozen=True, kw_only=True):
    """Begin a session with a deployed agent."""

    agent: str
    """The name of the agent."""
    title: str = ""
    """A title for people; empty: the beginning of the first message."""
    input: str = ""
    """The first message; empty: none yet."""
    provider: str = ""
    """The provider of the workspace; empty: the agent's own."""
    options: dict[str, Any] = {}
    """Options of that provider, such as ``image``; used with ``provider``."""
    idle_s: float | None = IDLE_S
    """Seconds without work after which the workspace is put to sleep; None: never."""
    take: TakePolicy = "all"
    """How turns take waiting messages."""
    context: Raw = NO_JSON
    """The context of the session's runs, as JSON."""


class SendMessage(Request, frozen=True, kw_only=True):
    """Add a message to the queue. A paused or sleeping session wakes up."""

    input: str
    """The text."""
    id: str = ""
    """The sender's own id of the message; empty: derived from the request. The same id again has
    no effect."""


class EditMessage(Request, frozen=True, kw_only=True):
    """Change a message that still waits."""

    id: str
    """The id of the message."""
    input: str
    """The new text."""


class RemoveMessage(Request, frozen=True, kw_only=True):
    """Remove a message that still waits."""

    id: str
    """The id of the message."""


class InterruptSession(Request, frozen=True, kw_only=True):
    """Stop the turn at work, and its commands. Waiting messages stay in the queue."""

    reason: str = ""
    """Why, for people."""
    turn: int = 0
    """Only this turn: an interrupt that comes late must not stop the next one. 0: the current one.
    """


class PauseSession(Request, frozen=True, kw_only=True):
    """Take no more turns after the current one, and put the workspace to sleep."""


class WakeSession(Request, frozen=True, kw_only=True):
    """Continue a paused session, and open its workspace ahead of the next message."""


class RenameSession(Request, frozen=True, kw_only=True):
    """Give the session another title."""

    title: str
    """The new title."""


class ForkSession(Request, frozen=True, kw_only=True):
    """Begin this session as a copy of another one. Published to the subject of the new session."""

    source: str
    """The session to copy; it is only read."""
    turn: int | None = None
    """The last turn that the copy has; 0: none. None: the session as it is now."""
    title: str = ""
    """A title for people; empty: that of the source, marked as a fork."""
    provider: str = ""
    """The provider of the new workspace; empty: the one of the source."""
    options: dict[str, Any] = {}
    """Options of that provider; used with ``provider``."""
    input: str = ""
    """The first message of the copy; empty: none yet."""


class SwitchProvider(Request, frozen=True, kw_only=True):
    """Move the workspace to another provider, after the turn at work."""

    provider: str
    """The provider to move to."""
    options: dict[str, Any] = {}
    """Its options, such as ``image``."""


class RewindSession(Request, frozen=True, kw_only=True):
    """Restore the conversation and the files as they were after a turn."""

    turn: int
    """The last turn that stays; 0: none."""


class ConfigureSession(Request, frozen=True, kw_only=True):
    """Change settings; a field that is left out stays as it is."""

    idle_s: float | msgspec.UnsetType | None = msgspec.UNSET
    """Seconds without work before the workspace sleeps; None: never."""
    take: TakePolicy | msgspec.UnsetType = msgspec.UNSET
    """How turns take waiting messages."""


class ArchiveSession(Request, frozen=True, kw_only=True):
    """Hide the session from lists, and put its workspace to sleep. The next message brings it
    back.
    """


class DestroySession(Request, frozen=True, kw_only=True):
    """End the session: stop its turn, delete its workspace. Forks of it stay."""


SessionRequest = (
    CreateSession
    | SendMessage
    | EditMessage
    | RemoveMessage
    | InterruptSession
    | PauseSession
    | WakeSession
    | RenameSession
    | ForkSession
    | SwitchProvider
    | RewindSession
    | ConfigureSession
    | ArchiveSession
    | DestroySession
)

REQUEST_KINDS: dict[str, type[SessionRequest]] = {
    "create": CreateSession,
    "send": SendMessage,
    "edit": EditMessage,
    "remove": RemoveMessage,
    "interrupt": InterruptSession,
    "pause": PauseSession,
    "wake": WakeSession,
    "rename": RenameSession,
    "fork": ForkSession,
    "switch": SwitchProvider,
    "rewind": RewindSession,
    "configure": ConfigureSession,
    "archive": ArchiveSession,
    "destroy": DestroySession,
}
"""The last token of a request's subject, and what its message is."""


# --- the state ------------------------------------------------------------------------------------


class QueuedMessage(Spec, frozen=True, kw_only=True):
    """A message that waits for a turn."""

    id: str
    """Its id: the sender's own, or one made from the request."""
    input: str
    """The text."""
    by: str = ""
    """The user who sent it; empty: no particular one."""
    request: int = 0
    """The sequence of its request."""


class ActiveTurn(Spec, frozen=True, kw_only=True):
    """The turn at work."""

    number: int
    """Its number; the first is 1."""
    run: str
    """The run that takes it."""
    messages: list[QueuedMessage] = []
    """What it answers."""
    interrupted: bool = False
    """Whether a person asked to stop it."""
    reason: str = ""
    """Why it is to be stopped, for people."""


class SessionWorkspace(Spec, frozen=True, kw_only=True):
    """Where the files of a session are."""

    provider: str
    """The provider of the sandbox."""
    options: dict[str, Any] = {}
    """Options that differ from the agent's own."""
    generation: int = 1
    """Counts switches and rewinds; part of the sandbox's name."""
    sleeps: int = 0
    """How often it was put to sleep; part of the ids of operations."""
    base: str = ""
    """The checkpoint that this generation began with; empty: the agent's own files."""
    tree: str = ""
    """The last checkpoint; empty: none yet."""
    box: Literal["none", "open", "closing", "asleep"] = "none"
    """Whether a box may be running; ``asleep``: all files are in the last checkpoint."""


class LeftoverSandbox(Spec, frozen=True, kw_only=True):
    """A sandbox that the session does not need any more, and that is to be deleted."""

    sandbox: str
    """Its name."""
    provider: str
    """Its provider."""


class ForkOrigin(Spec, frozen=True, kw_only=True):
    """Where a fork comes from."""

    session: str
    """The source."""
    turn: int
    """The last turn of the source that the fork has."""


class PendingFork(Spec, frozen=True, kw_only=True):
    """The source is being copied; there is no session to work with yet."""

    request: int
    """The sequence of the request."""
    source: str
    """The session to copy."""
    turn: int | None = None
    """The last turn that the copy has; None: the source as it is now."""
    provider: str = ""
    """The provider of the new workspace; empty: the one of the source."""
    options: dict[str, Any] = {}
    """Its options."""


class PendingSwitch(Spec, frozen=True, kw_only=True):
    """A switch that was accepted and is not done."""

    request: int
    """The sequence of its request."""
    generation: int
    """The generation of the sandbox that it makes."""
    provider: str
    """The provider to move to."""
    options: dict[str, Any] = {}
    """Its options."""


class PendingRewind(Spec, frozen=True, kw_only=True):
    """A rewind that was accepted and is not done."""

    request: int
    """The sequence of its request."""
    generation: int
    """The generation of the sandbox that it makes."""
    turn: int
    """The last turn that stays."""


class Refusal(Spec, frozen=True, kw_only=True):
    """A request that had no effect, and why."""

    request: int
    """Its sequence in the stream of requests."""
    kind: str
    """What was asked for: the last token of its subject."""
    error: ErrorInfo
    """Why not, for people and programs."""


SessionLife = Literal["open", "paused", "archived", "destroying", "destroyed"]


class SessionState(Message, frozen=True, kw_only=True, tag="session.state"):
    """All that is known of a session, except its conversation and its finished turns."""

    session: str
    """The id of the session."""
    through: int = 0
    """The last request that is part of this, by its sequence."""
    life: SessionLife = "open"
    """What the session may do."""
    agent: str = ""
    """The name of the agent."""
    title: str = ""
    """The title for people."""
    created: str = ""
    """When it was created, in RFC 3339."""
    changed: str = ""
    """When a person or a turn last changed it."""
    context: Raw = NO_JSON
    """The context of its runs."""
    idle_s: float | None = IDLE_S
    """Seconds without work before the workspace sleeps; None: never."""
    take: TakePolicy = "all"
    """How turns take waiting messages."""
    queue: list[QueuedMessage] = []
    """Messages that wait, oldest first."""
    seen: list[str] = []
    """The ids of the last messages, so that a repeated one is known as such."""
    active: ActiveTurn | None = None
    """The turn at work; None: none."""
    begun: int = 0
    """The number of the last turn that began; numbers are not used again."""
    turn: int = 0
    """The number of the last finished turn that counts: after a rewind it is an earlier one."""
    status: DoneStatus | Literal[""] = ""
    """How the last turn ended; empty: there was none."""
    said: str = ""
    """The beginning of the last answer or error, for lists."""
    usage: TokenUsage = TokenUsage()
    """The tokens of all finished turns."""
    workspace: SessionWorkspace | None = None
    """Where its files are; None: its agent has no sandbox."""
    origin: ForkOrigin | None = None
    """Of a fork: its source."""
    generations: int = 0
    """The number of the last generation of the sandbox; numbers are not used again."""
    leftovers: list[LeftoverSandbox] = []
    """Sandboxes that are to be deleted."""
    fork: PendingFork | None = None
    """A copy of another session that is under way; no turn begins before it is done."""
    switch: PendingSwitch | None = None
    """A change of the provider that is under way."""
    rewind: PendingRewind | None = None
    """A rewind that is under way."""
    opening: int = 0
    """The sequence of the request to open the workspace ahead of the next message; 0: none."""
    trouble: str = ""
    """What keeps the session from its work, for people; empty: nothing."""
    refused: list[Refusal] = []
    """The last requests that had no effect."""


class SessionTurn(Message, frozen=True, kw_only=True, tag="session.turn"):
    """A finished turn."""

    number: int
    """Its number."""
    after: int
    """The turn before it in the conversation; after a rewind not the one with the number before."""
    run: str
    """The run that took it."""
    status: DoneStatus
    """How it ended."""
    input: list[QueuedMessage] = []
    """What it answered."""
    said: str = ""
    """The beginning of its answer, or of its error."""
    items: int = 0
    """The length of the conversation's history after it."""
    tree: str = ""
    """The checkpoint of the workspace after it; empty: no workspace, or none was opened yet."""
    provider: str = ""
    """Where the workspace was."""
    usage: TokenUsage = TokenUsage()
    """The tokens of its run."""
    error: ErrorInfo | None = None
    """Why it failed; None: it did not."""
    ended: str = ""
    """When it ended, in RFC 3339."""
    unsaved: str = ""
    """Why there is no checkpoint although there is a workspace; empty: there is one."""


class SessionDue(Message, frozen=True, kw_only=True, tag="session.due"):
    """A timer of the session: if it has not begun a turn since, its workspace is put to sleep."""

    session: str
    """The id of the session."""
    begun: int
    """The number of turns that had begun when the timer was set."""


SessionMessage = SessionState | SessionTurn | SessionDue
