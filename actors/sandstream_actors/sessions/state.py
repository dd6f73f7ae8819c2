"""What a request does to the state of a session. Pure: no I/O, no clock.

Each request either changes the state or is refused with a reason that its sender can read in the
state. Effects (runs, sandboxes, copies of conversations) follow from the state; see ``steps``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, assert_never

import msgspec
from sandstream_bus.errors import InvalidSubject
from sandstream_bus.logs.sessions import StoredAsk
from sandstream_bus.wire.message_base import ErrorInfo
from sandstream_bus.wire.sessions import (
    MAX_QUEUED,
    MAX_QUEUED_BYTES,
    MAX_REFUSED,
    MAX_SEEN,
    MAX_TEXT_BYTES,
    ArchiveSession,
    ConfigureSession,
    CreateSession,
    DestroySession,
    EditMessage,
    ForkSession,
    InterruptSession,
    LeftoverSandbox,
    PauseSession,
    PendingFork,
    PendingRewind,
    PendingSwitch,
    QueuedMessage,
    Refusal,
    RemoveMessage,
    RenameSession,
    RewindSession,
    SendMessage,
    SessionRequest,
    SessionState,
    SessionWorkspace,
    SwitchProvider,
    WakeSession,
)
from sandstream_bus.wire.subjects import SHARED, check_session, is_token, session_sandbox, user_of

MAX_IDLE_S = 7 * 86_400.0
"""The longest time before a workspace sleeps. A timer must not outlive the stream of timers."""
_TITLE_CHARS = 200
_FIRST_WORDS_CHARS = 60
_ID_CHARS = 128
_REASON_CHARS = 1000

replace = msgspec.structs.replace


class KnownAgent(NamedTuple):
    """What a session must know of its agent when it begins."""

    provider: str
    """The provider of the agent's sandbox; empty: it has none."""


class RefusedAsk(Exception):
    """The request has no effect."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = f"session.{code}"


def has_begun(state: SessionState) -> bool:
    """Is there a session? The state of one that could not begin has only refused requests."""
    return bool(state.agent) or state.fork is not None


def follow(
    state: SessionState | None,
    session: str,
    asks: Iterable[StoredAsk],
    agents: Mapping[str, KnownAgent],
) -> SessionState | None:
    """The state after these requests.

    Args:
        state: The last state; None: there is none.
        session: The id of the session.
        asks: The requests after ``state.through``, in order.
        agents: The deployed agents that requests name.
    """
    for ask in asks:
        before = state or SessionState(session=session, life="destroyed")
        try:
            after = _applied(before, ask, agents)
        except RefusedAsk as no:
            after = refuse(before, ask.sequence, ask.kind, str(no), no.code)
        state = replace(after, through=ask.sequence)
    return state


def refuse(
    state: SessionState, request: int, kind: str, message: str, code: str = "session.failed"
) -> SessionState:
    """The state with one more refused request. A reason may quote a part of the request."""
    error = ErrorInfo(code=code, message=message[:_REASON_CHARS])
    refusal = Refusal(request=request, kind=kind, error=error)
    return replace(state, refused=[*state.refused, refusal][-MAX_REFUSED:])


def _applied(state: SessionState, ask: StoredAsk, agents: Mapping[str, KnownAgent]) -> SessionState:
    request = ask.request
    if request is None:
        raise RefusedAsk("invalid", ask.why)
    if not isinstance(request, CreateSession | ForkSession):
        _check_exists(state, request)
    after = _changed(state, request, ask, agents)
    return after if after is state else replace(after, changed=ask.time)


def _check_exists(state: SessionState, request: SessionRequest) -> None:
    if not has_begun(state):
        raise RefusedAsk("unknown", f"there is no session {state.session}")
    if state.life in ("destroying", "destroyed") and not isinstance(request, DestroySession):
        raise RefusedAsk("destroyed", f"the session {state.session} was destroyed")


def _changed(
    state: SessionState, request: SessionRequest, ask: StoredAsk, agents: Mapping[str, KnownAgent]
) -> SessionState:
    match request:
        case CreateSession():
            return _create(state, request, ask, agents)
        case ForkSession():
            return _fork(state, request, ask)
        case SendMessage():
            return _queued(state, request, ask)
        case EditMessage():
            return _edit(state, request)
        case RemoveMessage():
            return _remove(state, request)
        case InterruptSession():
            return _interrupt(state, request)
        case PauseSession():
            return _pause(state)
        case WakeSession():
            return _wake(state, ask)
        case RenameSession():
            return replace(state, title=_title(request.title))
        case SwitchProvider():
            return _switch(state, request, ask)
        case RewindSession():
            return _rewind(state, request, ask)
        case ConfigureSession():
            return _configure(state, request)
        case ArchiveSession():
            return _archive(state)
        case DestroySession():
            return _destroy(state)
        case _:
            assert_never(request)


# --- beginning ------------------------------------------------------------------------------------


def _check_new(state: SessionState) -> None:
    if has_begun(state):
        what = "was destroyed" if state.life in ("destroying", "destroyed") else "exists"
        raise RefusedAsk("exists", f"the session {state.session} {what}: choose another id")


def _create(
    state: SessionState, request: CreateSession, ask: StoredAsk, agents: Mapping[str, KnownAgent]
) -> SessionState:
    _check_new(state)
    agent = agents.get(request.agent)
    if agent is None:
        raise RefusedAsk(
            "unknown_agent",
            f"no agent {request.agent[:80]!r} is registered. Start a worker that offers it: "
            "sandstream worker my_app.py",
        )
    _check_idle(request.idle_s)
    _check_options(request.options, ask)
    provider = _provider(request.provider) or agent.provider
    if not agent.provider and (request.provider or request.options):
        raise RefusedAsk("no_workspace", f"the agent {request.agent!r} has no sandbox")
    new = SessionState(
        session=state.session,
        agent=request.agent,
        title=_title(request.title, may_be_empty=True),
        created=ask.time,
        changed=ask.time,
        context=request.context,
        idle_s=request.idle_s,
        take=request.take,
        workspace=SessionWorkspace(provider=provider, options=request.options)
        if agent.provider
        else None,
        generations=1,
        refused=state.refused,
    )
    return _with_input(new, request.input, ask)


def _fork(state: SessionState, request: ForkSession, ask: StoredAsk) -> SessionState:
    _check_new(state)
    try:
        source = check_session(request.source)
    except InvalidSubject as error:
        raise RefusedAsk("invalid", str(error)) from error
    if user_of(source) != user_of(state.session):
        raise RefusedAsk("forbidden", f"the session {source} belongs to another user")
    if source == state.session:
        raise RefusedAsk("invalid", "a session cannot be a fork of itself")
    if request.turn is not None and request.turn < 0:
        raise RefusedAsk("invalid", "turn must be 0 or more")
    if request.options and not request.provider:
        raise RefusedAsk("invalid", "options need a provider")
    _check_options(request.options, ask)
    new = SessionState(
        session=state.session,
        title=_title(request.title, may_be_empty=True),
        created=ask.time,
        changed=ask.time,
        fork=PendingFork(
            request=ask.sequence,
            source=source,
            turn=request.turn,
            provider=_provider(request.provider),
            options=request.options,
        ),
        generations=1,
        refused=state.refused,
    )
    return _with_input(new, request.input, ask)


def _with_input(state: SessionState, text: str, ask: StoredAsk) -> SessionState:
    return _queued(state, SendMessage(input=text), ask) if text else state


# --- the queue ------------------------------------------------------------------------------------


def _queued(state: SessionState, request: SendMessage, ask: StoredAsk) -> SessionState:
    name = request.id or f"m{ask.sequence}"
    if len(name) > _ID_CHARS:
        raise RefusedAsk("invalid", f"the id of a message has at most {_ID_CHARS} characters")
    if name in state.seen:
        return state
    _check_text(request.input)
    if len(state.queue) >= MAX_QUEUED:
        raise RefusedAsk("full", f"{MAX_QUEUED} messages wait already: wait for the next turn")
    by = "" if ask.user == SHARED else ask.user
    message = QueuedMessage(id=name, input=request.input, by=by, request=ask.sequence)
    queue = [*state.queue, message]
    _check_size(queue)
    words = " ".join(request.input.split())
    return replace(
        state,
        queue=queue,
        seen=[*state.seen, name][-MAX_SEEN:],
        title=state.title or words[:_FIRST_WORDS_CHARS],
        life="open",
        trouble="",
    )


def _edit(state: SessionState, request: EditMessage) -> SessionState:
    _check_text(request.input)
    place = _place_of(state, request.id)
    queue = list(state.queue)
    queue[place] = replace(queue[place], input=request.input)
    _check_size(queue)
    return replace(state, queue=queue)


def _remove(state: SessionState, request: RemoveMessage) -> SessionState:
    place = _place_of(state, request.id)
    return replace(state, queue=state.queue[:place] + state.queue[place + 1 :])


def _place_of(state: SessionState, name: str) -> int:
    for place, message in enumerate(state.queue):
        if message.id == name:
            return place
    raise RefusedAsk("not_waiting", f"no message {name[:80]!r} waits: a turn may have taken it")


def _check_text(text: str) -> None:
    if not text.strip():
        raise RefusedAsk("invalid", "a message must not be empty")
    size = len(text.encode())
    if size > MAX_TEXT_BYTES:
        raise RefusedAsk("too_big", f"the message has {size} bytes; {MAX_TEXT_BYTES} are allowed")


def _check_size(queue: list[QueuedMessage]) -> None:
    size = sum(len(it.input.encode()) for it in queue)
    if size > MAX_QUEUED_BYTES:
        raise RefusedAsk(
            "full", f"the waiting messages have {size} bytes; {MAX_QUEUED_BYTES} are allowed"
        )


# --- the rest of the life -------------------------------------------------------------------------


def _interrupt(state: SessionState, request: InterruptSession) -> SessionState:
    active = state.active
    if active is None or request.turn not in (0, active.number):
        raise RefusedAsk("not_working", "that turn is not at work: nothing is interrupted")
    if active.interrupted:
        return state
    return replace(state, active=replace(active, interrupted=True, reason=request.reason[:1000]))


def _pause(state: SessionState) -> SessionState:
    return _resting(state, "paused")


def _archive(state: SessionState) -> SessionState:
    return _resting(state, "archived")


def _resting(state: SessionState, life: Literal["paused", "archived"]) -> SessionState:
    """Trouble of the past must not keep the workspace awake: it is tried again."""
    is_so = state.life == life and not state.trouble
    return state if is_so else replace(state, life=life, opening=0, trouble="")


def _wake(state: SessionState, ask: StoredAsk) -> SessionState:
    space = state.workspace
    must_open = space is not None and space.box != "open" and state.active is None
    opening = ask.sequence if must_open else state.opening
    return replace(state, life="open", opening=opening, trouble="")


def _configure(state: SessionState, request: ConfigureSession) -> SessionState:
    if request.idle_s is not msgspec.UNSET:
        _check_idle(request.idle_s)
        state = replace(state, idle_s=request.idle_s)
    if request.take is not msgspec.UNSET:
        state = replace(state, take=request.take)
    return state


def _switch(state: SessionState, request: SwitchProvider, ask: StoredAsk) -> SessionState:
    if state.workspace is None and state.fork is None:
        raise RefusedAsk("no_workspace", f"the agent {state.agent!r} has no sandbox")
    _check_free(state)
    generation = state.generations + 1
    provider = _provider(request.provider)
    if not provider:
        raise RefusedAsk("invalid", "provider must not be empty")
    _check_options(request.options, ask)
    pending = PendingSwitch(
        request=ask.sequence, generation=generation, provider=provider, options=request.options
    )
    return replace(state, switch=pending, generations=generation, trouble="")


def _rewind(state: SessionState, request: RewindSession, ask: StoredAsk) -> SessionState:
    _check_free(state)
    if not 0 <= request.turn <= state.begun:
        raise RefusedAsk("unknown_turn", f"there is no turn {request.turn}")
    generation = state.generations + 1
    pending = PendingRewind(request=ask.sequence, generation=generation, turn=request.turn)
    return replace(state, rewind=pending, generations=generation, trouble="")


def _check_options(options: Mapping[str, object], ask: StoredAsk) -> None:
    """Options replace those that the author of the agent has set, such as the hosts that a box may
    reach.
    """
    if options and ask.user != SHARED:
        raise RefusedAsk(
            "forbidden",
            f"{ask.user} may choose the provider, but not its options: only requests below "
            f"ask.{SHARED} have options",
        )


def _check_free(state: SessionState) -> None:
    if state.switch is not None or state.rewind is not None:
        raise RefusedAsk("busy", "a switch or a rewind is under way: wait until it is done")


def _destroy(state: SessionState) -> SessionState:
    if state.life in ("destroying", "destroyed"):
        return state
    active, space = state.active, state.workspace
    if active is not None:
        active = replace(active, interrupted=True, reason="the session is destroyed")
    return replace(
        state,
        life="destroying",
        queue=[],
        active=active,
        leftovers=[*state.leftovers, *_all_sandboxes(state)],
        # keep its description: a fork may need it later
        workspace=replace(space, box="none") if space is not None else None,
        fork=None,
        switch=None,
        rewind=None,
        opening=0,
        trouble="",
        agent=state.agent or "?",  # a fork that had not begun: its id is used up
    )


def _all_sandboxes(state: SessionState) -> list[LeftoverSandbox]:
    found = []
    if state.workspace is not None:
        found.append(leftover(state, state.workspace))
    if state.switch is not None:
        name = session_sandbox(state.session, state.switch.generation)
        found.append(LeftoverSandbox(sandbox=name, provider=state.switch.provider))
    return found


def leftover(state: SessionState, space: SessionWorkspace) -> LeftoverSandbox:
    """The sandbox of a workspace, to be deleted."""
    name = session_sandbox(state.session, space.generation)
    return LeftoverSandbox(sandbox=name, provider=space.provider)


# --- checks ---------------------------------------------------------------------------------------


def _title(title: str, *, may_be_empty: bool = False) -> str:
    words = " ".join(title.split())
    if not words and not may_be_empty:
        raise RefusedAsk("invalid", "a title must not be empty")
    if len(words) > _TITLE_CHARS:
        raise RefusedAsk("invalid", f"a title has at most {_TITLE_CHARS} characters")
    return words


def _provider(name: str) -> str:
    if name and not is_token(name):
        raise RefusedAsk("invalid", f"{name[:80]!r} cannot be the name of a provider")
    return name


def _check_idle(idle_s: float | None) -> None:
    if idle_s is not None and not (math.isfinite(idle_s) and 0 < idle_s <= MAX_IDLE_S):
        raise RefusedAsk(
            "invalid", f"idle_s must be above 0 and at most {MAX_IDLE_S:.0f}, or null for never"
        )
