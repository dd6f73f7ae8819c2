"""Every kind of call that a harness sends: its owner, its request and its result.

The ``kind`` of :class:`CallRequested` and :class:`CallFinished` is a tag, and the table
:data:`CALLS` defines each tag. Other code reads the traits of a call, or matches all kinds and ends
in ``assert_never``; it never compares kinds (``tests/test_typed_calls.py``). A new kind needs one
tag, one row, and one case wherever the type checkers report it missing.
"""

from __future__ import annotations

from typing import Final, Literal, TypeGuard

import msgspec

from sandstream_bus.wire.host_results import (
    ChildInput,
    HandedOff,
    History,
    Prepared,
    Reviewed,
    StopDecision,
)
from sandstream_bus.wire.sandboxes import Checkpointed, Opened

CallKind = Literal[
    "tool",
    "prepare",
    "model",
    "stop",
    "output",
    "error",
    "open",
    "checkpoint",
    "close",
    "child",
    "child_input",
    "child_output",
    "watch",
    "handoff",
    "guard",
    "review",
    "reject",
    "finish",
    "hook",
    "history",
    "save",
]
SandboxKind = Literal["open", "checkpoint", "close"]
"""The kinds that the sandbox actor alone does."""
CallOwner = Literal["tool_host", "sandbox", "harness"]


class CallTraits(msgspec.Struct, frozen=True, kw_only=True):
    """The traits that all calls of one kind share."""

    about: str
    """The purpose of the call, for people."""
    owner: CallOwner = "tool_host"
    """The actor that handles it. The sandbox actor handles a tool whose request names a sandbox."""
    request: tuple[str, ...] = ()
    """The fields of the request, besides the common ones."""
    result: type[msgspec.Struct] | None = None
    """The struct in the result's ``output``. None: there is no output, or it is a tool's output."""
    is_tool: bool = False
    """The model made this call and reads its result."""
    is_child_run: bool = False
    """The call is a child run, started by the harness."""
    is_model: bool = False
    """A success is reported as ``model.answered``; a ``call.finished`` reports a failure."""
    is_handoff: bool = False
    is_refusal: bool = False
    """The result is the text that the model reads for a call that a person refused."""
    checks_input: bool = False
    """Guardrails look at the run's input. They may outlive the turn beside which they run."""
    checks_answer: bool = False
    """It checks the model's answer; its failure makes the answer fail."""
    checks_output: bool = False
    """Guardrails, or a hook, look at the run's final output."""
    uses_session: bool = False
    """It reads or writes the user's session, which exists only in the process that started the run.
    """
    writes_session: bool = False
    is_during_child: bool = False
    """It lasts as long as a child run."""
    closes_sandbox: bool = False
    """It runs even if its run has ended or was cancelled. A repetition has no effect."""
    may_fail: bool = False
    """Its failure does not end the run."""

    @property
    def is_sandbox(self) -> bool:
        """It opens, saves or closes a sandbox as a whole."""
        return self.owner == "sandbox"

    @property
    def names_child(self) -> bool:
        """Its request names a child run."""
        return "child" in self.request


_CALLED: Final = ("name", "call_id", "arguments")
"""What the model called, as its answer says it."""

CALLS: Final[dict[CallKind, CallTraits]] = {
    "tool": CallTraits(
        about="Call a function tool, or a tool of a sandbox.",
        request=(*_CALLED, "at_most_once", "sandbox", "cwd", "user"),
        is_tool=True,
    ),
    "child": CallTraits(
        about="Run an agent as a tool.",
        owner="harness",
        request=(*_CALLED, "at_most_once", "cwd", "child"),
        is_tool=True,
        is_child_run=True,
        is_during_child=True,
    ),
    "child_input": CallTraits(
        about="Make the input of a child run.", request=(*_CALLED, "child"), result=ChildInput
    ),
    "child_output": CallTraits(
        about="Make a tool's output of the end of its child run.", request=(*_CALLED, "child")
    ),
    "watch": CallTraits(
        about="Show the events of a child run to the user's code. A result of ``<call>-listening`` "
        "says that the watch of ``<call>-watch`` has begun to listen.",
        request=(*_CALLED, "child"),
        is_during_child=True,
    ),
    "hook": CallTraits(
        about="Call a hook (``name``) around a call that another actor does.", request=_CALLED
    ),
    "reject": CallTraits(
        about="Make the text for a call that a person refused.", request=_CALLED, is_refusal=True
    ),
    "prepare": CallTraits(
        about="Compute instructions, enabled tools and filtered input of a turn.", result=Prepared
    ),
    "model": CallTraits(about="Ask a model object of the user.", is_model=True),
    "review": CallTraits(
        about="Tell hooks of the model's answer; say which of its calls need a person.",
        result=Reviewed,
    ),
    "stop": CallTraits(about="Ask a callable ``tool_use_behavior``.", result=StopDecision),
    "output": CallTraits(
        about="Validate the final answer.", result=StopDecision, checks_answer=True
    ),
    "error": CallTraits(about="Ask an error handler.", request=("error",), result=StopDecision),
    "handoff": CallTraits(
        about="Run callback, hook and filter of a handoff.",
        request=_CALLED,
        result=HandedOff,
        is_handoff=True,
    ),
    "guard": CallTraits(
        about="Run input guardrails (``name``: blocking, parallel or staged).",
        request=("name",),
        checks_input=True,
    ),
    "finish": CallTraits(
        about="Run the output guardrails (``name``: tool or handler, if the output is not the "
        "model's), or the hook ``agent_end``, for the final output (``value``).",
        request=("name", "value"),
        checks_output=True,
    ),
    "history": CallTraits(about="Read the user's session.", result=History, uses_session=True),
    "save": CallTraits(
        about="Write to the user's session (``name``: paused, to also keep the outcomes of a turn "
        "that waits for people).",
        request=("name",),
        uses_session=True,
        writes_session=True,
    ),
    "open": CallTraits(
        about="Open the agent's sandbox.", owner="sandbox", request=("sandbox",), result=Opened
    ),
    "checkpoint": CallTraits(
        about="Save the agent's sandbox.",
        owner="sandbox",
        request=("sandbox",),
        result=Checkpointed,
        may_fail=True,
    ),
    "close": CallTraits(
        about="Close the agent's sandbox.",
        owner="sandbox",
        request=("sandbox",),
        result=Checkpointed,
        closes_sandbox=True,
        may_fail=True,
    ),
}


def is_sandbox_kind(kind: CallKind) -> TypeGuard[SandboxKind]:
    return CALLS[kind].is_sandbox
