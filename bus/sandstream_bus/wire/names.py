"""Names of runs, sessions, sandboxes and conversations: their owners, and how names are derived;
and the names in a subject that was taken apart.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple, NewType

from sandstream_bus.errors import InvalidSubject

RunId = NewType("RunId", str)

_USER = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_RESERVED = re.compile(r"_t\d+-|^child-|^task-\d+$|^memory-[a-z]+-[0-9a-f]{32}$")
_HASHED = re.compile(r"=sha256-[0-9a-f]{64}")  # no escaped text has a "=" before an "s"
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SESSION_RUN = re.compile(r"(.+)_t(\d{1,9})-session")
MAX_SESSION_CHARS = 80
"""The longest id of a session: the ids of its runs and operations must fit into subjects."""
SHARED = "shared"
"""The user of all runs without an owner."""


def run_id_of_key(key: str) -> RunId:
    """The run id for an idempotency key: the key itself if it is a valid token.

    A key that looks like the id of a child run, of a phase of a memory, or of a task without a key,
    is hashed. Otherwise a task could take the id of another user's run.
    """
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", key) and not _RESERVED.search(key):
        return RunId(key)
    return RunId("key-" + hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()[:32])


def child_of(run: str, call: str) -> RunId:
    """The run that answers a call of another run: always the same id, with the same owner."""
    name = f"{run}_{call}"
    if len(name) > 64:
        name = "child-" + hashlib.sha256(name.encode()).hexdigest()[:32]
        user = user_of(run)
        if user != SHARED:
            name = f"{user}={name}"
    return RunId(name)


def check_user(user: str) -> str:
    """Return ``user`` if it may own runs, else raise."""
    if _USER.fullmatch(user) is None:
        raise InvalidSubject(
            f"the user {user[:80]!r} is not possible: use 1 to 32 of the characters a-z 0-9 _ -, "
            "a letter or digit first"
        )
    return user


def user_of(run: str) -> str:
    """The owner of a run, by its id."""
    user, equals, _ = run.partition("=")
    return user if equals and _USER.fullmatch(user) else SHARED


def run_of_user(user: str, key: str) -> RunId:
    """The run of a user's task that has this idempotency key."""
    run = run_id_of_key(key)
    return run if user == SHARED else RunId(f"{user}={run}")


def check_session(session: str) -> str:
    """Return ``session`` if it can be the id of a session, else raise.

    A session of a user is called ``<user>=<name>``, as the user's runs are.
    """
    user = user_of(session)
    name = session if user == SHARED else session.removeprefix(f"{user}=")
    if len(session) > MAX_SESSION_CHARS or not _SESSION.fullmatch(name) or _RESERVED.search(name):
        raise InvalidSubject(
            f"the session {session[:100]!r} is not possible: use 1 to 64 of the characters A-Z a-z "
            f"0-9 _ -, at most {MAX_SESSION_CHARS} together with the user, and no name of a run"
        )
    return session


def session_of_user(user: str, name: str) -> str:
    """The id of the session that a user calls ``name``."""
    return check_session(name if user == SHARED else f"{check_user(user)}={name}")


def session_run(session: str, number: int) -> RunId:
    """The run that takes a turn of a session. No key of a task can have this name, and it is not
    hashed, so that the session can be read from it.
    """
    return RunId(f"{session}_t{number}-session")


def session_of_run(run: str) -> tuple[str, int] | None:
    """The session and the number of the turn, if the run is one of a session."""
    found = _SESSION_RUN.fullmatch(run)
    return (found[1], int(found[2])) if found else None


def session_conversation(session: str) -> str:
    """The conversation of a session. No task can name it: it belongs to no user."""
    return f"@/{session}"


def session_sandbox(session: str, generation: int) -> str:
    """The sandbox of a session. The sandbox of a run cannot have this name."""
    return f"{session}_w{generation}"


def conversation_of_user(user: str, session: str) -> str:
    """The id of the conversation that a user calls ``session``. Each user has a separate set of
    names, so the task of one user cannot name the conversation of another.
    """
    if user != SHARED:
        return f"@{user}/{session}"
    if session.startswith("@"):
        raise InvalidSubject(
            f"the conversation {session[:80]!r} belongs to a user: publish the task as that user, "
            "or choose an id that does not begin with '@'"
        )
    if is_hashed(session):
        raise InvalidSubject(
            f"the conversation {session!r} is called by the hash of its id, and may belong to a "
            "user: give the id itself"
        )
    return session


def is_hashed(session: str) -> bool:
    """Does the token stand for a conversation id that is too long for a subject?"""
    return _HASHED.fullmatch(session) is not None


def sandbox_of(run: str, agent: str) -> str:
    """The sandbox that an agent has for itself in a run."""
    name = f"{run}_{hashlib.sha256(agent.encode()).hexdigest()[:8]}"
    if len(name) > 100:
        name = "sandbox-" + hashlib.sha256(name.encode()).hexdigest()[:32]
    return name


_TOKEN = re.compile(r"[A-Za-z0-9_=-]{1,128}")
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_ESCAPED = re.compile(rb"=([0-9A-F]{2})")


def is_token(value: str) -> bool:
    """Can the text be one token of a subject?"""
    return _TOKEN.fullmatch(value) is not None


def check_token(value: str, what: str) -> str:
    """Return ``value`` if it can be one token of a subject, else raise."""
    if not is_token(value):
        shown = value if len(value) <= 80 else f"{value[:80]}…"
        raise InvalidSubject(
            f"{what} {shown!r} cannot be part of a subject: "
            "use 1 to 128 of the characters A-Z a-z 0-9 _ - ="
        )
    return value


def token_of(text: str) -> str:
    """Escape any text into one token, reversibly: each foreign byte becomes ``=XX``."""

    def escape(match: re.Match[str]) -> str:
        try:
            return "".join(f"={byte:02X}" for byte in match.group().encode())
        except UnicodeEncodeError:  # a lone surrogate is not text: the check refuses it
            return match.group()

    return check_token(_FOREIGN.sub(escape, text), "the name")


def text_of(token: str) -> str:
    """The inverse of :func:`token_of`; any subject token of a foreign publisher can be read."""
    raw = _ESCAPED.sub(lambda match: bytes([int(match.group(1), 16)]), token.encode())
    return raw.decode("utf-8", "replace")


def session_token(session: str) -> str:
    """A conversation's id as a token; an id that is too long is hashed.

    The id cannot be read back from a hashed token, but the token can be used in place of the id.
    """
    if not session:
        raise InvalidSubject("the id of a conversation must not be empty")
    if is_hashed(session):
        return session
    try:
        data = session.encode()
    except UnicodeEncodeError:
        raise InvalidSubject(
            f"the id of a conversation must be text; {session[:80]!r} has a lone surrogate"
        ) from None
    escaped = _FOREIGN.sub(lambda it: "".join(f"={b:02X}" for b in it.group().encode()), session)
    if _TOKEN.fullmatch(escaped):
        return escaped
    return "=sha256-" + hashlib.sha256(data).hexdigest()


def session_of(token: str) -> str:
    """The inverse of :func:`session_token`; a hashed id stays hashed."""
    return token if is_hashed(token) else text_of(token)


def scope_token(scope: str) -> str:
    """A memory scope as a token: any text that is not empty will do (see :func:`session_token`)."""
    if not scope:
        raise InvalidSubject("the name of a memory scope must not be empty")
    return session_token(scope)


# --- subjects, taken apart ------------------------------------------------------------------------


class TaskSubject(NamedTuple):
    """A parsed subject of a task."""

    user: str
    agent: str


class AskSubject(NamedTuple):
    """A parsed subject below ``<p>.ask.``, except tasks."""

    user: str
    family: str
    """``run`` or ``memory``."""
    name: str
    """The run, or the token of the memory's scope."""
    kind: str


class SessionAsk(NamedTuple):
    """A parsed subject of a request to a session."""

    user: str
    session: str
    kind: str


class SandboxSubject(NamedTuple):
    """A parsed subject below ``<p>.sandbox.``."""

    sandbox: str
    kind: str
    detail: str


class SubjectParts(NamedTuple):
    """A parsed subject of any kind. All fields are empty if the prefix is another one."""

    family: str
    """``run``, ``sandbox``, ``memory``, ``task``, …"""
    owner: str
    """The run, the sandbox, the token of the memory's scope, …"""
    rest: str


class RunSubject(NamedTuple):
    """A parsed subject below ``<p>.run.``."""

    run: RunId
    kind: str
    detail: str
    """The pool or call after the kind; empty if there is none."""
