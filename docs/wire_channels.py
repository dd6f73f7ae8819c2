"""The table of channels: which subject carries which messages, and who writes and reads it.

The addresses come from `subjects.py`, the messages from the modules of messages. docs/asyncapi.yaml
is made of it by `generate_asyncapi.py`.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, get_args

from sandstream_bus import conversation_messages as c
from sandstream_bus import memory_messages as y
from sandstream_bus import messages as m
from sandstream_bus import sandbox_messages as b
from sandstream_bus import trace_messages as t
from sandstream_bus.subjects import Subjects

PREFIX = "sandstream"
_SUBJECTS = Subjects(PREFIX)

PARAMETERS = {
    "agent": "The agent's name; bytes other than A-Z a-z 0-9 _ - are written =XX.",
    "run": "The run's id: 1 to 128 of A-Z a-z 0-9 _ - =.",
    "pool": "A harness pool or a tool host pool.",
    "call": "The call's id within its run, such as t1-0.",
    "name": "The timer's name within its run, or within its memory.",
    "sandbox": "The sandbox's id.",
    "provider": "The sandbox provider, such as local.",
    "node": "The node of the provider that has the sandbox.",
    "op": "The operation's id, chosen by whoever asks.",
    "session": "The conversation's id, escaped like an agent's name; a long one is hashed.",
    "scope": "The memory's name, escaped like a conversation's id.",
    "trace": "The trace's id: 32 hexadecimal digits, lower case.",
    "group": "A group of tracing actors, which share their work.",
    "consumer": "The durable consumer that gave up.",
    "sequence": "The stream sequence of the message that was parked.",
    "event": "The rest of the event's subject: start.POOL, model, done, and so on.",
}


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
    """Anybody may publish here: an operation that the installation receives."""


def channels() -> list[Channel]:
    """The table, in the order of the grammar in `subjects.py`.

    A parameter is written =name= until the end, because subjects refuse curly brackets.
    """
    s = _SUBJECTS
    log, agents, parked = "SANDSTREAM_LOG", "SANDSTREAM_AGENTS", "SANDSTREAM_PARKED"
    memories = "SANDSTREAM_MEMORY"
    table = [
        Channel(
            "task",
            s.task("AGENT").replace("AGENT", "=agent="),
            "A task for a deployed agent",
            (m.Task, m.Claim),
            "anybody",
            "harness",
            log,
            open_to_all=True,
        ),
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
            "The model's answer, or why it must be waited for",
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
            "An agent is called as a tool: which run that is",
            (m.CallRequested, m.Claim),
            "harness",
            "observers",
            log,
        ),
        Channel(
            "result",
            s.result("=run=", "=pool="),
            "The outcome of a call; of a child run also that it waits for a person",
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
            "More input for a run under way",
            (m.InputStaged, m.Claim),
            "anybody",
            "harness",
            log,
            open_to_all=True,
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
            "A person's answer; the first one for a call counts",
            (m.ApprovalDecided,),
            "anybody, timer",
            "harness",
            log,
            open_to_all=True,
        ),
        Channel(
            "waiting",
            s.waiting("=run="),
            "Nothing happens until a person answers",
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
            "anybody",
            "harness, tool host",
            log,
            open_to_all=True,
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
            "anybody",
            "sandbox actor",
            log,
            open_to_all=True,
        ),
        Channel(
            "sandbox_op_node",
            s.sandbox_op("=sandbox=", "=provider=", "=node="),
            "An operation on a sandbox, on the node that has it",
            (b.SandboxRequest, m.Claim),
            "anybody",
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
            "whoever asked",
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
        Channel(
            "memory_state",
            s.memory_state("SCOPE").replace("SCOPE", "=scope="),
            "All that is known of a memory; the last one counts, written under compare-and-set",
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
            "Consolidate what was found",
            (y.MergeRequested, m.Claim),
            "anybody, memory actor, timer",
            "memory actor",
            log,
            open_to_all=True,
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
            "What became of a memory, or why a step of it failed",
            (y.MemoryChanged, y.MemoryFailed, m.Claim),
            "memory actor, clients",
            "people, observers",
            log,
        ),
        Channel(
            "timer",
            s.timer("=run=", "=name="),
            "A scheduled message; the server publishes its body to its target when due",
            (
                m.TurnRequested,
                m.ApprovalDecided,
                m.CancelRequested,
                y.ExtractRequested,
                y.MergeRequested,
            ),
            "harness, memory actor",
            "the server",
            log,
        ),
        Channel(
            "trace_spans",
            s.trace_spans("=trace="),
            "Spans of the user's own, told when they have ended",
            (t.SpansReported, m.Claim),
            "anybody",
            "tracing actor",
            log,
            open_to_all=True,
        ),
        Channel(
            "trace_exported",
            s.trace_exported("=run=", "=group="),
            "How much of a run under way a group of tracing actors has exported",
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
            "An empty question, answered by whoever serves that consumer, on its reply subject",
            (),
            "anybody",
            "the consumer's workers",
            "",
        ),
        Channel(
            "live",
            s.live("=event=", "=run="),
            "The run's stored events as they come",
            (*get_args(m.RunEvent), m.Claim),
            "the server",
            "anybody",
            "",
        ),
        Channel(
            "delta",
            s.delta("=run="),
            "Model stream events, never stored",
            (m.LiveEvent,),
            "harness, tool host",
            "anybody",
            "",
        ),
        Channel(
            "output",
            s.output("=run="),
            "Output of commands as it comes, never stored; {run} is the sandbox where no run asked",
            (b.LiveOutput,),
            "sandbox actor",
            "anybody",
            "",
        ),
    ]
    return [row._replace(address=re.sub(r"=(\w+)=", r"{\1}", row.address)) for row in table]
