"""What the tool host answers, by the kind of call: the structs inside of a ``call.finished``."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Raw

from sandstream_bus.wire.specs import NO_JSON, AgentSpec, ToolSpec


class ItemRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item of a run as its result shows it."""

    kind: str
    """``message_output_item``, ``tool_call_item``, …"""
    agent: str
    raw: Raw
    output: Raw = NO_JSON
    source: str = ""
    target: str = ""
    in_input: bool = False
    """The rewritten input has it word for word: it must not be sent twice."""


class Rewrite(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The conversation as a handoff's filter left it."""

    input: list[Raw]
    items: list[ItemRecord]
    """What the run has produced, for its result."""
    earlier: int | None = None
    """How many of ``items`` are not of this turn; a session gets the others in place of what the
    turn has said. None: it gets all that was said.
    """
    model_items: list[Raw]
    """What the next agent's model sees after ``input``."""
    is_text: bool = False
    """``input`` is one plain text."""


class GuardrailRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one guardrail said."""

    kind: Literal["input", "output", "tool_input", "tool_output"]
    name: str
    tripped: bool = False
    behavior: str = ""
    """Of a tool's: ``allow``, ``reject_content``, ``raise_exception``."""
    message: str = ""
    """What ``reject_content`` tells the model."""
    info: Raw = NO_JSON
    agent: str = ""


class Prepared(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a ``prepare`` call."""

    instructions: str | None = None
    prompt: Raw = NO_JSON
    disabled_tools: list[str] = []
    input: list[Raw] | None = None
    """Set only where a filter rewrote the input."""
    upto: int = 0
    """The last event of the log that ``input`` takes into account."""
    tools: list[ToolSpec] = []
    """Listed for this turn, besides the agent's own."""


class StopDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a ``stop`` call, and of an error handler."""

    final: bool
    value: Raw = NO_JSON
    include_in_history: bool = True


class Reviewed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a ``review`` call."""

    needs_approval: list[str] = []
    """Calls (``t1-0``) for which a person must be asked."""
    outputs: dict[str, Raw] = {}
    """Calls that a guardrail refused before anybody was asked: what the model reads."""


class HandedOff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a ``handoff`` call."""

    agent: str
    agents: dict[str, AgentSpec] = {}
    """Agents that the run did not know before."""
    rewrite: Rewrite | None = None


class ChildInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a ``child_input`` call. With an ``error`` beside it there can be no run."""

    input: list[Raw]
    is_text: bool = False
    """``input`` is one plain text."""


class History(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a ``history`` call: what was said before, and the run's input as the session
    will keep it.
    """

    history: list[Raw] = []
    input: list[Raw] | None = None
    kept: list[Raw] | None = None
    """Set where what is new does not simply follow the history: ``history`` is then all of it."""
    session: str = ""
    """The session's id, where it had none when the run started."""
