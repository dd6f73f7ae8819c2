"""The subject grammar: the only place where a subject is built or taken apart.

    <p>.task.<agent>                      a task for a deployed agent
    <p>.agent.<agent>                     registration of a deployed agent (last one counts)
    <p>.run.<run>.start.<pool>            the run begins; wakes the harness of that pool
    <p>.run.<run>.turn.<pool>             take the next turn (handoff, after a wait, reopened)
    <p>.run.<run>.model                   the model's answer, or why it must be waited for
    <p>.run.<run>.call.<pool>             call the user's code in the tool host of that pool
    <p>.run.<run>.sandbox.<provider>      do this in a sandbox; any node of that provider
    <p>.run.<run>.sandbox.<provider>.<node>  the same, for the node that has the sandbox
    <p>.run.<run>.started.<call>          an at-most-once call is about to run
    <p>.run.<run>.child                   an agent is called as a tool: which run that is
    <p>.run.<run>.result.<pool>           the outcome of a call; wakes the harness of that pool
    <p>.run.<run>.history                 the conversation that the run continues
    <p>.run.<run>.input                   more input for a run under way
    <p>.run.<run>.approval.requested      a call waits for a person
    <p>.run.<run>.approval.decided        the answer; anybody who is allowed to publishes it
    <p>.run.<run>.waiting                 nothing happens until a person answers
    <p>.run.<run>.cancel                  stop the run
    <p>.run.<run>.done                    the run's end
    <p>.sandbox.<sandbox>.state           a sandbox's own log: intent, ready, checkpoints, end
    <p>.sandbox.<sandbox>.op.<provider>   do this, asked by a session object; any node
    <p>.sandbox.<sandbox>.op.<provider>.<node>  the same, for the node that has the sandbox
    <p>.sandbox.<sandbox>.reply.<op>      the one outcome of that
    <p>.session.<session>.log             a conversation's own log: who joined, left, added what
    <p>.session.<session>.snapshot        the same up to a sequence, to read it faster
    <p>.memory.<scope>.state              what is known of a memory; the last one counts
    <p>.memory.<scope>.extract            find what is worth remembering in a rollout
    <p>.memory.<scope>.merge              consolidate what was found
    <p>.memory.<scope>.edit               somebody changed its files in a workspace
    <p>.memory.<scope>.event              what was done, or failed
    <p>.timer.<run>.<name>                a scheduled message (see timers.py)
    <p>.trace.<trace>.spans               spans of the user's own, told when they have ended
    <p>.trace.<run>.exported.<group>      how much of a run under way that group has exported
    <p>.parked.<consumer>.<sequence>      a message that could not be handled, with the reason
    <p>.alive.<consumer>                  answered by whoever serves that consumer (core NATS)
    <p>.live.<run>.<kind>…                the run's stored events as they come (core NATS)
    <p>.live.<run>.delta                  model stream events, never stored (core NATS)
    <p>.live.<run>.output                 output of commands as it comes, never stored (core NATS);
                                          <run> is the sandbox where no run asked for it

``<p>`` is the installation's prefix. A token is 1 to 128 characters of ``A-Z a-z 0-9 _ - =``.
Foreign text (agent names) is escaped with :func:`token_of`; ids are checked with
:func:`check_token`. A conversation's id may have any length (:func:`session_token`).
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple, NewType

import msgspec

from sandstream_bus.errors import InvalidSubject

RunId = NewType("RunId", str)

DEFAULT_PREFIX = "sandstream"
_TOKEN = re.compile(r"[A-Za-z0-9_=-]{1,128}")
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_ESCAPED = re.compile(rb"=([0-9A-F]{2})")
_HASHED = re.compile(r"=sha256-[0-9a-f]{64}")  # no escaped text has a "=" before an "s"


def is_token(value: str) -> bool:
    """May it stand between two dots of a subject?"""
    return _TOKEN.fullmatch(value) is not None


def check_token(value: str, what: str) -> str:
    """Return ``value`` if it may stand between two dots of a subject, else raise."""
    if not is_token(value):
        raise InvalidSubject(
            f"{what} {value[:80]!r} cannot be part of a subject: "
            "use 1 to 128 of the characters A-Z a-z 0-9 _ - ="
        )
    return value


def token_of(text: str) -> str:
    """Escape any text into one token, reversibly: each foreign byte becomes ``=XX``."""

    def escape(match: re.Match[str]) -> str:
        try:
            return "".join(f"={byte:02X}" for byte in match.group().encode())
        except UnicodeEncodeError:  # a lone surrogate is no text: the check refuses it
            return match.group()

    return check_token(_FOREIGN.sub(escape, text), "the name")


def text_of(token: str) -> str:
    """The inverse of :func:`token_of`; any subject token of a foreign publisher can be read."""
    raw = _ESCAPED.sub(lambda match: bytes([int(match.group(1), 16)]), token.encode())
    return raw.decode("utf-8", "replace")


def session_token(session: str) -> str:
    """A conversation's id as a token; what is too long for one is hashed.

    A hashed id cannot be read back from its token, but the token stands for the id itself.
    """
    if not session:
        raise InvalidSubject("the id of a conversation must not be empty")
    if _HASHED.fullmatch(session):
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
    return token if _HASHED.fullmatch(token) else text_of(token)


def scope_token(scope: str) -> str:
    """A memory scope as a token: any text that is not empty will do (see :func:`session_token`)."""
    if not scope:
        raise InvalidSubject("the name of a memory scope must not be empty")
    return session_token(scope)


def run_id_of_key(key: str) -> RunId:
    """The run id that belongs to an idempotency key; the key itself where it is a valid token."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", key):
        return RunId(key)
    return RunId("key-" + hashlib.sha256(key.encode()).hexdigest()[:32])


def child_of(run: str, call: str) -> RunId:
    """The run that answers a call of another run: always the same one."""
    name = f"{run}_{call}"
    if len(name) > 64:
        name = "child-" + hashlib.sha256(name.encode()).hexdigest()[:32]
    return RunId(name)


def sandbox_of(run: str, agent: str) -> str:
    """The sandbox that an agent has for itself in a run."""
    name = f"{run}_{hashlib.sha256(agent.encode()).hexdigest()[:8]}"
    if len(name) > 100:
        name = "sandbox-" + hashlib.sha256(name.encode()).hexdigest()[:32]
    return name


def _place(provider: str, node: str) -> str:
    """Who does it. The names come out of messages that anybody may have written."""
    place = check_token(provider, "the provider")
    return f"{place}.{check_token(node, 'the node')}" if node else place


class SandboxSubject(NamedTuple):
    """A subject below ``<p>.sandbox.``, taken apart."""

    sandbox: str
    kind: str
    detail: str


class RunSubject(NamedTuple):
    """A subject below ``<p>.run.``, taken apart."""

    run: RunId
    kind: str
    detail: str
    """The pool or call that follows the kind; empty if there is none."""


class Subjects(msgspec.Struct, frozen=True):
    """Builds every subject of one installation."""

    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        for token in self.prefix.split("."):
            check_token(token, "the subject prefix")

    @property
    def stream_stem(self) -> str:
        """The prefix as part of stream and bucket names, which know no dots."""
        return self.prefix.replace(".", "-").upper()

    def task(self, agent: str) -> str:
        return f"{self.prefix}.task.{token_of(agent)}"

    def agent(self, agent: str) -> str:
        return f"{self.prefix}.agent.{token_of(agent)}"

    def run_all(self, run: str) -> str:
        return f"{self.prefix}.run.{run}.>"

    def start(self, run: str, pool: str) -> str:
        return f"{self.prefix}.run.{run}.start.{pool}"

    def turn(self, run: str, pool: str) -> str:
        return f"{self.prefix}.run.{run}.turn.{pool}"

    def model(self, run: str) -> str:
        return f"{self.prefix}.run.{run}.model"

    def call(self, run: str, pool: str) -> str:
        return f"{self.prefix}.run.{run}.call.{check_token(pool, 'the pool')}"

    def run_sandbox(self, run: str, provider: str, node: str = "") -> str:
        return f"{self.prefix}.run.{run}.sandbox.{_place(provider, node)}"

    def sandbox_state(self, sandbox: str) -> str:
        return f"{self.prefix}.sandbox.{sandbox}.state"

    def sandbox_op(self, sandbox: str, provider: str, node: str = "") -> str:
        sandbox = check_token(sandbox, "the sandbox")
        return f"{self.prefix}.sandbox.{sandbox}.op.{_place(provider, node)}"

    def sandbox_reply(self, sandbox: str, op: str) -> str:
        sandbox, op = check_token(sandbox, "the sandbox"), check_token(op, "the operation")
        return f"{self.prefix}.sandbox.{sandbox}.reply.{op}"

    def session_log(self, session: str) -> str:
        return f"{self.prefix}.session.{session_token(session)}.log"

    def session_snapshot(self, session: str) -> str:
        return f"{self.prefix}.session.{session_token(session)}.snapshot"

    def session_logs(self) -> str:
        """The logs of all conversations, as a filter."""
        return f"{self.prefix}.session.*.log"

    def output(self, run: str) -> str:
        return f"{self.prefix}.live.{check_token(run, 'the run')}.output"

    def started(self, run: str, call: str) -> str:
        return f"{self.prefix}.run.{run}.started.{call}"

    def result(self, run: str, pool: str) -> str:
        return f"{self.prefix}.run.{run}.result.{check_token(pool, 'the pool')}"

    def cancel(self, run: str) -> str:
        return f"{self.prefix}.run.{run}.cancel"

    def done(self, run: str) -> str:
        return f"{self.prefix}.run.{run}.done"

    def child(self, run: str) -> str:
        return f"{self.prefix}.run.{run}.child"

    def history(self, run: str) -> str:
        return f"{self.prefix}.run.{run}.history"

    def input(self, run: str) -> str:
        return f"{self.prefix}.run.{run}.input"

    def approval_requested(self, run: str) -> str:
        return f"{self.prefix}.run.{run}.approval.requested"

    def approval_decided(self, run: str) -> str:
        return f"{self.prefix}.run.{run}.approval.decided"

    def waiting(self, run: str) -> str:
        return f"{self.prefix}.run.{run}.waiting"

    def memory_state(self, scope: str) -> str:
        return f"{self.prefix}.memory.{scope_token(scope)}.state"

    def memory_states(self) -> str:
        """The states of all memories, as a filter."""
        return f"{self.prefix}.memory.*.state"

    def memory_extract(self, scope: str) -> str:
        return f"{self.prefix}.memory.{scope_token(scope)}.extract"

    def memory_merge(self, scope: str) -> str:
        return f"{self.prefix}.memory.{scope_token(scope)}.merge"

    def memory_edit(self, scope: str) -> str:
        return f"{self.prefix}.memory.{scope_token(scope)}.edit"

    def memory_event(self, scope: str) -> str:
        return f"{self.prefix}.memory.{scope_token(scope)}.event"

    def timer(self, run: str, name: str) -> str:
        return f"{self.prefix}.timer.{run}.{name}"

    def trace_spans(self, trace: str) -> str:
        return f"{self.prefix}.trace.{check_token(trace, 'the trace id')}.spans"

    def trace_exported(self, run: str, group: str) -> str:
        return f"{self.prefix}.trace.{run}.exported.{check_token(group, 'the group')}"

    def parked(self, consumer: str, sequence: int) -> str:
        return f"{self.prefix}.parked.{consumer}.{sequence}"

    def alive(self, consumer: str) -> str:
        return f"{self.prefix}.alive.{consumer}"

    def live_all(self, run: str = "*") -> str:
        return f"{self.prefix}.live.{run}.>"

    def live(self, kind: str, run: str = "*") -> str:
        return f"{self.prefix}.live.{run}.{kind}"

    def delta(self, run: str) -> str:
        return f"{self.prefix}.live.{run}.delta"

    def parse_run(self, subject: str) -> RunSubject:
        """Take a ``run`` or ``live`` subject apart."""
        rest = subject.removeprefix(self.prefix + ".")
        family, _, rest = rest.partition(".")
        run, _, rest = rest.partition(".")
        kind, _, detail = rest.partition(".")
        if rest == "" or family not in ("run", "live"):
            raise InvalidSubject(f"{subject!r} is not the subject of a run event")
        return RunSubject(RunId(run), kind, detail)

    def parse_sandbox(self, subject: str) -> SandboxSubject:
        """Take a ``sandbox`` subject apart."""
        rest = subject.removeprefix(f"{self.prefix}.sandbox.")
        sandbox, _, rest = rest.partition(".")
        kind, _, detail = rest.partition(".")
        if rest == "" or len(rest) + len(sandbox) + 1 == len(subject):
            raise InvalidSubject(f"{subject!r} is not a subject of a sandbox")
        return SandboxSubject(sandbox, kind, detail)

    def parse_session(self, subject: str) -> str:
        """The conversation's id in the subject of its log."""
        token, _, kind = subject.removeprefix(f"{self.prefix}.session.").partition(".")
        if kind != "log" or f"{self.prefix}.session.{token}.log" != subject:
            raise InvalidSubject(f"{subject!r} is not the subject of a conversation's log")
        return session_of(token)

    def parse_memory(self, subject: str) -> str:
        """The token of the scope in a subject of a memory."""
        token, _, kind = subject.removeprefix(f"{self.prefix}.memory.").partition(".")
        if not kind or f"{self.prefix}.memory.{token}.{kind}" != subject:
            raise InvalidSubject(f"{subject!r} is not a subject of a memory")
        return token

    def parse_task(self, subject: str) -> str:
        """The agent's name in a task subject."""
        return text_of(subject.removeprefix(f"{self.prefix}.task."))
