"""The tool host's results by kind of call: the structs inside a ``call.finished``."""

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
    """The rewritten input contains this item verbatim: it must not be sent twice."""


class Rewrite(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The conversation after the filter of a handoff."""

    input: list[Raw]
    items: list[ItemRecord]
    """The items that the run has produced, for its result."""
    earlier: int | None = None
    """How many of ``items`` are from earlier turns. A session gets the other items instead of the
    turn's own. None: the session gets the turn's own items.
    """
    model_items: list[Raw]
    """The items that the next agent's model sees after ``input``."""
    is_text: bool = False
    """``input`` is one plain text."""


class GuardrailRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The verdict of one guardrail."""

    kind: Literal["input", "output", "tool_input", "tool_output"]
    name: str
    tripped: bool = False
    behavior: str = ""
    """Of a tool's: ``allow``, ``reject_content``, ``raise_exception``."""
    message: str = ""
    """The text of ``reject_content`` for the model."""
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
    """Calls (``t1-0``) that need a person's approval."""
    outputs: dict[str, Raw] = {}
    """Calls that a guardrail refused before the approval was requested, with the text for the
    model.
    """


class HandedOff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a ``handoff`` call."""

    agent: str
    agents: dict[str, AgentSpec] = {}
    """Agents that the run did not contain before."""
    rewrite: Rewrite | None = None


class ChildInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a ``child_input`` call. If ``error`` is set, the child run cannot start."""

    input: list[Raw]
    is_text: bool = False
    """``input`` is one plain text."""


class History(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a ``history`` call: the session's history, and the run's input as the session
    will store it.
    """

    history: list[Raw] = []
    input: list[Raw] | None = None
    kept: list[Raw] | None = None
    """Set if the new items do not simply follow the history: ``history`` then contains all items.
    """
    session: str = ""
    """The session's id, if it had none when the run started."""
