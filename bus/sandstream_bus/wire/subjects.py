"""The subject grammar: the only place where a subject is built or taken apart.

    <p>.task.<agent>                      a task for a deployed agent; its run has no owner
    <p>.ask.<user>.task.<agent>           a task whose run belongs to that user
    <p>.ask.<user>.run.<run>.cancel       the user wants a run of theirs stopped
    <p>.ask.<user>.run.<run>.retry        the user wants a failed run of theirs to go on
    <p>.ask.<user>.run.<run>.input        more input from the user for a run of theirs
    <p>.ask.<user>.run.<run>.approval     the user's answer to a question of a run of theirs
    <p>.ask.<user>.memory.<scope>.merge   the user wants a memory consolidated
    <p>.ask.<user>.session.<session>.<kind>  what the user wants of a session of theirs
    <p>.agent.<agent>                     registration of a deployed agent (last one counts)
    <p>.open.<run>                        index: this run has not ended (see open_runs.py)
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
    <p>.run.<run>.approval.decided        the decision of a person
    <p>.run.<run>.waiting                 nothing happens until a person answers
    <p>.run.<run>.cancel                  stop the run
    <p>.run.<run>.done                    the run's end
    <p>.sandbox.<sandbox>.state           a sandbox's own log: intent, ready, checkpoints, end
    <p>.sandbox.<sandbox>.op.<provider>   do this, asked by a session object; any node
    <p>.sandbox.<sandbox>.op.<provider>.<node>  the same, for the node that has the sandbox
    <p>.sandbox.<sandbox>.reply.<op>      the one outcome of that
    <p>.session.<session>.log             a conversation's own log: who joined, left, added what
    <p>.session.<session>.snapshot        the same up to a sequence, to read it faster
    <p>.session.<session>.state           the whole state of a session; the last one counts
    <p>.session.<session>.turn.<number>   a finished turn of a session
    <p>.memory.<scope>.state              what is known of a memory; the last one counts
    <p>.memory.<scope>.extract            find what is worth remembering in a rollout
    <p>.memory.<scope>.merge              consolidate what was found
    <p>.memory.<scope>.edit               its files were changed in a workspace
    <p>.memory.<scope>.event              what was done, or failed
    <p>.timer.<owner>.<name>              a message that is due later (see timers.py)
    <p>.due.<subject>                     that message, due now; <subject> has no prefix
    <p>.trace.<trace>.spans               spans of the user's own, told when they have ended
    <p>.trace.<run>.exported.<group>      how much of a run under way that group has exported
    <p>.parked.<consumer>.<sequence>      a message that could not be handled, with the reason
    <p>.alive.<consumer>                  answered by the actor of that consumer (core NATS)
    <p>.live.<run>.<kind>…                the run's stored events as they come (core NATS)
    <p>.live.<run>.delta                  model stream events, never stored (core NATS)
    <p>.live.<run>.output                 output of commands as it comes, never stored (core NATS);
                                          <run> is the sandbox where no run asked for it
    <p>.live.<session>.session            an empty hint: the session has changed (core NATS)

``<p>`` is the installation's prefix. People outside publish only ``task`` and ``ask`` subjects,
which have a stream of their own. A run that belongs to a user has an id that begins with the user's
name and ``=``; ``shared`` is the user of all other runs.

A token is 1 to 128 characters of ``A-Z a-z 0-9 _ - =``. Foreign text (agent names) is escaped with
:func:`token_of`; ids are checked with :func:`check_token`. A conversation's id may have any length
(:func:`session_token`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from sandstream_bus.errors import InvalidSubject
from sandstream_bus.wire.headers import KEY, MSG_ID
from sandstream_bus.wire.names import SHARED as SHARED
from sandstream_bus.wire.names import AskSubject as AskSubject
from sandstream_bus.wire.names import RunId as RunId
from sandstream_bus.wire.names import RunSubject as RunSubject
from sandstream_bus.wire.names import SandboxSubject as SandboxSubject
from sandstream_bus.wire.names import SessionAsk as SessionAsk
from sandstream_bus.wire.names import SubjectParts as SubjectParts
from sandstream_bus.wire.names import TaskSubject as TaskSubject
from sandstream_bus.wire.names import check_session as check_session
from sandstream_bus.wire.names import check_token as check_token
from sandstream_bus.wire.names import check_user as check_user
from sandstream_bus.wire.names import child_of as child_of
from sandstream_bus.wire.names import conversation_of_user as conversation_of_user
from sandstream_bus.wire.names import is_token as is_token
from sandstream_bus.wire.names import run_id_of_key as run_id_of_key
from sandstream_bus.wire.names import run_of_user as run_of_user
from sandstream_bus.wire.names import sandbox_of as sandbox_of
from sandstream_bus.wire.names import scope_token as scope_token
from sandstream_bus.wire.names import session_conversation as session_conversation
from sandstream_bus.wire.names import session_of as session_of
from sandstream_bus.wire.names import session_of_run as session_of_run
from sandstream_bus.wire.names import session_of_user as session_of_user
from sandstream_bus.wire.names import session_run as session_run
from sandstream_bus.wire.names import session_sandbox as session_sandbox
from sandstream_bus.wire.names import session_token as session_token
from sandstream_bus.wire.names import text_of as text_of
from sandstream_bus.wire.names import token_of as token_of
from sandstream_bus.wire.names import user_of as user_of

DEFAULT_PREFIX = "sandstream"
ANY = "*"
"""In place of a run, a pool, …: the subject is a filter for all of them."""


def _place(provider: str, node: str) -> str:
    """The receiver of a call. The names come from messages, which may be untrusted."""
    place = check_token(provider, "the provider")
    return f"{place}.{check_token(node, 'the node')}" if node else place


AskKind = Literal["cancel", "retry", "input", "approval"]
_ASKS = {
    *(("run", kind) for kind in ("cancel", "retry", "input", "approval")),
    ("memory", "merge"),
}


def run_in(subject: str) -> RunId:
    """The run of a stored run event, in any installation: a saved run may come from another one."""
    return RunId(subject.partition(".run.")[2].partition(".")[0])


def kind_in(subject: str) -> str:
    """What follows the run in the subject of a stored run event: its kind, pool and call."""
    return subject.partition(".run.")[2].partition(".")[2]


class Subjects(msgspec.Struct, frozen=True):
    """Builds every subject of one installation."""

    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        for token in self.prefix.split("."):
            check_token(token, "the subject prefix")

    @property
    def stream_stem(self) -> str:
        """The prefix as part of stream and bucket names, which cannot contain dots."""
        return self.prefix.replace(".", "-").upper()

    # --- filters -------------------------------------------------------------------------------

    def matching(self, *patterns: str) -> list[str]:
        """Patterns below the prefix, for the tables of streams and permissions."""
        return [f"{self.prefix}.{it}" for it in patterns]

    def events(self, *kinds: str) -> list[str]:
        """The events of all runs of these kinds, such as ``done`` or ``start.*``."""
        return self.matching(*(f"run.*.{kind}" for kind in kinds))

    def sandbox_work(self, provider: str, node: str = "") -> list[str]:
        """The filter for operations on a provider's sandboxes: for any node, or for this one."""
        place = _place(provider, node)
        return self.matching(f"run.*.sandbox.{place}", f"sandbox.*.op.{place}")

    def memory_work(self) -> list[str]:
        """The filters of the memory actor: ends of runs, and requests to all memories."""
        requests = ("extract", "merge", "edit")
        return [self.done(ANY), *self.matching(*(f"memory.*.{it}" for it in requests))]

    def session_asks(self) -> list[str]:
        """The filter for all requests to sessions."""
        return self.matching("ask.*.session.>")

    def traced(self) -> list[str]:
        """The filters of the tracing actor."""
        runs = self.events("start.*", "waiting", "approval.decided", "done")
        return [*runs, *self.matching("trace.*.spans", "sandbox.*.reply.*")]

    def due_for(self, family: str) -> list[str]:
        """Timers that have fired for ``run``, ``memory`` or ``session`` subjects."""
        return self.matching(f"due.{family}.>")

    def approvals(self, run: str) -> str:
        """Questions and answers of a run."""
        return f"{self.prefix}.run.{run}.approval.*"

    def all_parked(self) -> str:
        return f"{self.prefix}.parked.>"

    # --- subjects ------------------------------------------------------------------------------

    def task(self, agent: str) -> str:
        return f"{self.prefix}.task.{token_of(agent)}"

    def tasks(self) -> list[str]:
        """All tasks, as filters."""
        return [f"{self.prefix}.task.*", f"{self.prefix}.ask.*.task.*"]

    def asks(self) -> list[str]:
        """The filters for users' requests about existing runs and memories."""
        return [f"{self.prefix}.ask.*.run.>", f"{self.prefix}.ask.*.memory.>"]

    def ask_task(self, user: str, agent: str) -> str:
        if user == SHARED:
            return self.task(agent)
        return f"{self.prefix}.ask.{check_user(user)}.task.{token_of(agent)}"

    def ask_run(self, user: str, run: str, kind: AskKind) -> str:
        run = check_token(run, "the run id")
        return f"{self.prefix}.ask.{check_user(user)}.run.{run}.{kind}"

    def ask_merge(self, user: str, scope: str) -> str:
        return f"{self.prefix}.ask.{check_user(user)}.memory.{scope_token(scope)}.merge"

    def ask_session(self, user: str, session: str, kind: str) -> str:
        """The subject of a request to a session; ``kind`` may be ``*``."""
        session = check_session(session)
        return f"{self.prefix}.ask.{check_user(user)}.session.{session}.{kind}"

    def agent(self, agent: str) -> str:
        return f"{self.prefix}.agent.{token_of(agent)}"

    def open(self, run: str) -> str:
        """The run's entry in the index of open runs."""
        return f"{self.prefix}.open.{run}"

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

    def session_state(self, session: str) -> str:
        return f"{self.prefix}.session.{check_session(session)}.state"

    def session_states(self) -> str:
        """The states of all sessions, as a filter."""
        return f"{self.prefix}.session.*.state"

    def session_turn(self, session: str, number: int | str) -> str:
        """The record of a turn; ``number`` may be ``*``."""
        return f"{self.prefix}.session.{check_session(session)}.turn.{number}"

    def session_idle(self, session: str) -> str:
        """The target of a session's timer. It is read where it becomes due, and not stored."""
        return f"{self.prefix}.session.{check_session(session)}.idle"

    def session_changed(self, session: str) -> str:
        """The hint that the state of the session has changed."""
        return f"{self.prefix}.live.{check_session(session)}.session"

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
        return self.memory_merge_at(scope_token(scope))

    def memory_merge_at(self, token: str) -> str:
        """The same, by the token of the scope: a long scope cannot be read back from its token."""
        return f"{self.prefix}.memory.{token}.merge"

    def memory_edit(self, scope: str) -> str:
        return f"{self.prefix}.memory.{scope_token(scope)}.edit"

    def memory_event(self, scope: str) -> str:
        return f"{self.prefix}.memory.{scope_token(scope)}.event"

    def timer(self, owner: str, name: str) -> str:
        return f"{self.prefix}.timer.{owner}.{name}"

    def due(self, target: str) -> str:
        """The subject on which a message for ``target`` arrives when it is due."""
        return f"{self.prefix}.due.{target.removeprefix(self.prefix + '.')}"

    def target_of_due(self, due: str) -> str:
        return f"{self.prefix}.{due.removeprefix(f'{self.prefix}.due.')}"

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

    def live_copy(self, subject: str) -> str:
        """The subject on which the server republishes a stored event; empty if it is not a run
        event.
        """
        family, run, rest = self.split(subject)
        return f"{self.prefix}.live.{run}.{rest}" if family == "run" else ""

    # --- taking apart --------------------------------------------------------------------------

    def split(self, subject: str) -> SubjectParts:
        """Take any subject apart."""
        rest = subject.removeprefix(f"{self.prefix}.")
        if rest == subject:
            return SubjectParts("", "", "")
        family, _, rest = rest.partition(".")
        owner, _, rest = rest.partition(".")
        return SubjectParts(family, owner, rest)

    def parse_run(self, subject: str) -> RunSubject:
        """Take a ``run`` or ``live`` subject apart."""
        rest = subject.removeprefix(self.prefix + ".")
        family, _, rest = rest.partition(".")
        run, _, rest = rest.partition(".")
        kind, _, detail = rest.partition(".")
        if rest == "" or family not in ("run", "live"):
            raise InvalidSubject(f"{subject!r} is not the subject of a run event")
        return RunSubject(RunId(run), kind, detail)

    def delivered_run(self, subject: str) -> RunSubject:
        """Like :meth:`parse_run`, for callers that then read or write the run. Servers also store
        messages whose subjects contain wildcards, and ``*`` as an id would mean all runs.
        """
        where = self.parse_run(subject)
        check_token(where.run, "the run id")
        return where

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

    def parse_session_state(self, subject: str) -> str:
        """The session in the subject of its state or of a turn; raises for a name that no session
        can have.
        """
        family, session, rest = self.split(subject)
        if family != "session" or rest.partition(".")[0] not in ("state", "turn"):
            raise InvalidSubject(f"{subject!r} is not a subject of a session")
        return check_session(session)

    def parse_session_idle(self, subject: str) -> str:
        """The session whose timer is due."""
        family, session, rest = self.split(self.target_of_due(subject))
        if family != "session" or rest != "idle":
            raise InvalidSubject(f"{subject!r} is not the timer of a session")
        return check_session(session)

    def parse_session_ask(self, subject: str) -> SessionAsk:
        """Parse the subject of a request to a session. Any kind is accepted here."""
        user, family, rest = self._ask(subject) or ("", "", "")
        session, _, kind = rest.partition(".")
        if family != "session" or not is_token(kind):
            raise InvalidSubject(f"{subject!r} is not a request to a session")
        return SessionAsk(check_user(user), check_session(session), kind)

    def parse_memory(self, subject: str) -> str:
        """The token of the scope in a subject of a memory."""
        token, _, kind = subject.removeprefix(f"{self.prefix}.memory.").partition(".")
        if not kind or f"{self.prefix}.memory.{token}.{kind}" != subject:
            raise InvalidSubject(f"{subject!r} is not a subject of a memory")
        return token

    def parse_task(self, subject: str) -> TaskSubject:
        """Take the subject of a task apart."""
        ask = self._ask(subject)
        if ask is None:
            return TaskSubject(SHARED, text_of(subject.removeprefix(f"{self.prefix}.task.")))
        user, kind, agent = ask
        if kind != "task" or "." in agent:
            raise InvalidSubject(f"{subject!r} is not the subject of a task")
        return TaskSubject(check_user(user), text_of(agent))

    def run_of_task(self, subject: str, headers: Mapping[str, str], sequence: int) -> RunId:
        """The run id of a task: from the key that the submitter chose, or from the task's sequence
        in its stream.

        A key in the message id also affects the server, which treats equal message ids of two users
        as one message. The header ``Sandstream-Key`` affects only Sandstream.
        """
        user = self.parse_task(subject).user
        key = headers.get(KEY) or headers.get(MSG_ID)
        if key:
            return run_of_user(user, key)
        return RunId(f"task-{sequence}" if user == SHARED else f"{user}=task-{sequence}")

    def parse_ask(self, subject: str) -> AskSubject:
        """Parse the subject of a user's request about a run or a memory."""
        user, family, rest = self._ask(subject) or ("", "", "")
        name, _, kind = rest.partition(".")
        if (family, kind) not in _ASKS:
            raise InvalidSubject(f"{subject!r} is not something that can be asked")
        return AskSubject(check_user(user), family, check_token(name, f"the {family}"), kind)

    def _ask(self, subject: str) -> tuple[str, str, str] | None:
        start = f"{self.prefix}.ask."
        if not subject.startswith(start):
            return None
        user, _, rest = subject.removeprefix(start).partition(".")
        family, _, rest = rest.partition(".")
        return user, family, rest
