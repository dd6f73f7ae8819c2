"""The table of channels: which subject carries which messages, and who writes and reads it.

The addresses come from `subjects.py`, the messages from the modules of messages.
`generate_asyncapi.py` makes docs/asyncapi.yaml from this table.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, get_args

from sandstream_bus.wire import conversations as c
from sandstream_bus.wire import memories as y
from sandstream_bus.wire import messages as m
from sandstream_bus.wire import open_runs as i
from sandstream_bus.wire import sandboxes as b
from sandstream_bus.wire import sessions as n
from sandstream_bus.wire import traces as t
from sandstream_bus.wire.subjects import AskKind, Subjects
from wire_parameters import PARAMETERS as PARAMETERS
from wire_sessions import session_hints, session_records, session_requests

PREFIX = "sandstream"
_SUBJECTS = Subjects(PREFIX)


class Channel(NamedTuple):
    """One row of the table."""

    key: str
    address: str
    title: str
    messages: tuple[type[Any], ...]
    writers: str
    readers: str
    stream: str
    """The stream that stores it; empty for core NATS."""
    open_to_all: bool = False
    """Outside users may publish here: an operation that the installation receives."""


_TIMED = (
    m.TurnRequested,
    m.ApprovalDecided,
    m.CancelRequested,
    y.ExtractRequested,
    y.MergeRequested,
    n.SessionDue,
)
_ASKS: list[tuple[AskKind, str, type[Any], str]] = [
    ("cancel", "The user wants a run stopped", m.CancelRequested, "run.{run}.cancel"),
    ("retry", "The user wants a failed run to continue", m.RetryRequested, "run.{run}.turn.{pool}"),
    ("input", "More input from the user for a run", m.InputStaged, "run.{run}.input"),
    (
        "approval",
        "The user's decision about a call of a run",
        m.ApprovalDecided,
        "run.{run}.approval.decided",
    ),
]


def channels() -> list[Channel]:
    """The table, in the order of the grammar in `subjects.py`.

    A parameter is written =name= until the end, because subjects refuse curly brackets.
    """
    s = _SUBJECTS
    log, agents, parked = "SANDSTREAM_LOG", "SANDSTREAM_AGENTS", "SANDSTREAM_PARKED"
    memories, requests, timers = "SANDSTREAM_MEMORY", "SANDSTREAM_REQUESTS", "SANDSTREAM_TIMERS"
    table = [
        Channel(
            "task",
            s.task("AGENT").replace("AGENT", "=agent="),
            "A task for a deployed agent; its run has no owner",
            (m.Task, m.Claim),
            "every user with the permission",
            "harness",
            requests,
            open_to_all=True,
        ),
        Channel(
            "ask_task",
            s.ask_task("user", "AGENT").replace("user.", "=user=.").replace("AGENT", "=agent="),
            "A task whose run belongs to the user",
            (m.Task,),
            "that user",
            "harness",
            requests,
            open_to_all=True,
        ),
        *(
            Channel(
                f"ask_{kind}",
                s.ask_run("user", "=run=", kind).replace("user.", "=user=."),
                title,
                (message,),
                "that user",
                f"harness, which checks it and writes {event}",
                requests,
                open_to_all=True,
            )
            for kind, title, message, event in _ASKS
        ),
        Channel(
            "ask_merge",
            s.ask_merge("user", "SCOPE").replace("user.", "=user=.").replace("SCOPE", "=scope="),
            "The user wants a memory consolidated",
            (y.MergeRequested,),
            "that user",
            "harness, which writes memory.{scope}.merge",
            requests,
            open_to_all=True,
        ),
        *(Channel(*row) for row in session_requests(s, requests)),
        Channel(
            "agent",
            s.agent("AGENT").replace("AGENT", "=agent="),
            "Registration of a deployed agent; the last one counts",
            (m.AgentRegistered, m.Claim),
            "worker",
            "harness",
            agents,
        ),
        Channel(
            "open",
            s.open("=run="),
            "Index: this run has not ended",
            (i.OpenRun,),
            "the process that starts the run, harness",
            "lists of runs, harness",
            "SANDSTREAM_OPEN",
        ),
        Channel(
            "start",
            s.start("=run=", "=pool="),
            "The run begins",
            (m.RunStarted, m.RunRestored, m.Claim),
            "harness, Runner",
            "harness of the pool",
            log,
        ),
        Channel(
            "turn",
            s.turn("=run=", "=pool="),
            "Take the next turn",
            (m.TurnRequested, m.RunMoved, m.RunReopened, m.Claim),
            "harness, timer, client, Runner",
            "harness of the pool",
            log,
        ),
        Channel(
            "model",
            s.model("=run="),
            "The model's answer, or the reason for a delay",
            (m.ModelAnswered, m.ModelDeferred, m.Claim),
            "harness",
            "observers",
            log,
        ),
        Channel(
            "call",
            s.call("=run=", "=pool="),
            "Call the user's code",
            (m.CallRequested, m.Claim),
            "harness",
            "tool host of the pool",
            log,
        ),
        Channel(
            "run_sandbox",
            s.run_sandbox("=run=", "=provider="),
            "Do this in a sandbox; any node of the provider",
            (m.CallRequested, m.Claim),
            "harness",
            "sandbox actor",
            log,
        ),
        Channel(
            "run_sandbox_node",
            s.run_sandbox("=run=", "=provider=", "=node="),
            "Do this in a sandbox, on the node that has it",
            (m.CallRequested, m.Claim),
            "harness",
            "sandbox actor of the node",
            log,
        ),
        Channel(
            "started",
            s.started("=run=", "=call="),
            "An at-most-once call is about to run",
            (m.CallStarted,),
            "tool host",
            "tool host",
            log,
        ),
        Channel(
            "child",
            s.child("=run="),
            "An agent is called as a tool; the event names the child run",
            (m.CallRequested, m.Claim),
            "harness",
            "observers",
            log,
        ),
        Channel(
            "result",
            s.result("=run=", "=pool="),
            "The outcome of a call, or the notice that a child run waits for a person",
            (m.CallFinished, m.ModelAnswered, m.ChildWaiting, m.Claim),
            "tool host, sandbox actor, harness of a child run",
            "harness of the pool",
            log,
        ),
        Channel(
            "history",
            s.history("=run="),
            "The conversation that the run continues",
            (m.ConversationOpened, m.Claim),
            "harness",
            "observers",
            log,
        ),
        Channel(
            "input",
            s.input("=run="),
            "More input for a run in progress",
            (m.InputStaged, m.Claim),
            "harness for a user, users who may write the log",
            "harness",
            log,
        ),
        Channel(
            "approval_requested",
            s.approval_requested("=run="),
            "A call waits for a person",
            (m.ApprovalRequested, m.Claim),
            "harness",
            "people",
            log,
        ),
        Channel(
            "approval_decided",
            s.approval_decided("=run="),
            "A person's decision; the first one for a call counts",
            (m.ApprovalDecided,),
            "harness for a user, timer, users who may write the log",
            "harness",
            log,
        ),
        Channel(
            "waiting",
            s.waiting("=run="),
            "The run continues only after a person has decided",
            (m.RunWaiting, m.Claim),
            "harness",
            "clients, observers",
            log,
        ),
        Channel(
            "cancel",
            s.cancel("=run="),
            "Stop the run",
            (m.CancelRequested,),
            "harness for a user, timer, users who may write the log",
            "harness, tool host",
            log,
        ),
        Channel(
            "done",
            s.done("=run="),
            "The run's end",
            (m.RunDone, m.Claim),
            "harness",
            "clients, observers",
            log,
        ),
        Channel(
            "sandbox_state",
            s.sandbox_state("=sandbox="),
            "A sandbox's own log",
            (
                b.SandboxIntended,
                b.SandboxReady,
                b.SandboxCheckpointed,
                b.SandboxPaused,
                b.SandboxMounted,
                b.SandboxStopped,
                b.SandboxLost,
                b.SandboxDeleted,
                m.Claim,
            ),
            "sandbox actor",
            "sandbox actor, observers",
            log,
        ),
        Channel(
            "sandbox_op",
            s.sandbox_op("=sandbox=", "=provider="),
            "An operation on a sandbox; any node of the provider",
            (b.SandboxRequest, m.Claim),
            "every user with the permission",
            "sandbox actor",
            log,
            open_to_all=True,
        ),
        Channel(
            "sandbox_op_node",
            s.sandbox_op("=sandbox=", "=provider=", "=node="),
            "An operation on a sandbox, on the node that has it",
            (b.SandboxRequest, m.Claim),
            "every user with the permission",
            "sandbox actor of the node",
            log,
            open_to_all=True,
        ),
        Channel(
            "sandbox_reply",
            s.sandbox_reply("=sandbox=", "=op="),
            "The one outcome of an operation",
            (b.SandboxReply, m.Claim),
            "sandbox actor",
            "the requester",
            log,
        ),
        Channel(
            "session_log",
            s.session_log("SESSION").replace("SESSION", "=session="),
            "A conversation's own log",
            (
                c.ConversationJoined,
                c.ConversationLeft,
                c.ConversationAdded,
                c.ConversationPopped,
                c.ConversationCleared,
                c.ConversationCut,
                m.Claim,
            ),
            "harness, clients",
            "harness, clients",
            log,
        ),
        Channel(
            "session_snapshot",
            s.session_snapshot("SESSION").replace("SESSION", "=session="),
            "The conversation up to a sequence of its log",
            (c.ConversationCompacted, m.Claim),
            "harness, clients",
            "harness, clients",
            log,
        ),
        *(Channel(*row) for row in session_records(s, log)),
        Channel(
            "memory_state",
            s.memory_state("SCOPE").replace("SCOPE", "=scope="),
            "The whole state of a memory; the last one counts, written under compare-and-set",
            (y.MemoryState, y.MemoryStateObject),
            "memory actor, sandbox actor, clients",
            "memory actor, sandbox actor, clients",
            memories,
        ),
        Channel(
            "memory_extract",
            s.memory_extract("SCOPE").replace("SCOPE", "=scope="),
            "Find what is worth remembering in a rollout",
            (y.ExtractRequested, m.Claim),
            "memory actor, timer",
            "memory actor",
            log,
        ),
        Channel(
            "memory_merge",
            s.memory_merge("SCOPE").replace("SCOPE", "=scope="),
            "Consolidate what was extracted",
            (y.MergeRequested, m.Claim),
            "harness for a user, memory actor, timer",
            "memory actor",
            log,
        ),
        Channel(
            "memory_edit",
            s.memory_edit("SCOPE").replace("SCOPE", "=scope="),
            "Files of a memory were changed in a workspace",
            (y.EditRequested, m.Claim),
            "sandbox actor",
            "memory actor",
            log,
        ),
        Channel(
            "memory_event",
            s.memory_event("SCOPE").replace("SCOPE", "=scope="),
            "A memory has changed, or one of its phases has failed",
            (y.MemoryChanged, y.MemoryFailed, m.Claim),
            "memory actor, clients",
            "people, observers",
            log,
        ),
        Channel(
            "timer",
            s.timer("=owner=", "=name="),
            "A message that is due later; the server publishes its body to its due subject then",
            _TIMED,
            "harness, memory actor, sessions actor",
            "the server",
            timers,
        ),
        Channel(
            "due",
            s.due("=subject="),
            "A message that is due now",
            _TIMED,
            "the server",
            "harness or memory actor, which publishes it to {subject}; sessions actor",
            timers,
        ),
        Channel(
            "trace_spans",
            s.trace_spans("=trace="),
            "Spans of the user's own code, reported when they have ended",
            (t.SpansReported, m.Claim),
            "every user with the permission",
            "tracing actor",
            log,
            open_to_all=True,
        ),
        Channel(
            "trace_exported",
            s.trace_exported("=run=", "=group="),
            "How much of a run in progress a group of tracing actors has exported",
            (t.SpansExported,),
            "tracing actor",
            "tracing actor",
            log,
        ),
        Channel(
            "parked",
            s.parked("=consumer=", 0).replace(".0", ".=sequence="),
            "A message that could not be handled, with the reason",
            (m.Parked,),
            "harness, tool host, actors",
            "people",
            parked,
        ),
        Channel(
            "alive",
            s.alive("=consumer="),
            "An empty question; workers of that consumer answer with the newest event they saw",
            (),
            "every user with the permission",
            "the consumer's workers",
            "",
        ),
        Channel(
            "live",
            s.live("=event=", "=run="),
            "The run's events as they are stored",
            (*get_args(m.RunEvent), m.Claim),
            "the server",
            "every user with the permission",
            "",
        ),
        Channel(
            "delta",
            s.delta("=run="),
            "Model stream events, never stored",
            (m.LiveEvent,),
            "harness, tool host",
            "every user with the permission",
            "",
        ),
        Channel(
            "output",
            s.output("=run="),
            "Output of commands as it arrives, never stored; {run} is the sandbox if no run asked",
            (b.LiveOutput,),
            "sandbox actor",
            "every user with the permission",
            "",
        ),
        *(Channel(*row) for row in session_hints(s)),
    ]
    return [row._replace(address=re.sub(r"=(\w+)=", r"{\1}", row.address)) for row in table]
