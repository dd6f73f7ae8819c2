"""Handoffs: an agent passes the conversation to another agent."""

from __future__ import annotations

from sandstream.handoffs.handoff import (
    Handoff,
    HandoffHistoryMapper,
    HandoffInputData,
    HandoffInputFilter,
    handoff,
)
from sandstream.handoffs.history import (
    default_handoff_history_mapper,
    get_conversation_history_wrappers,
    nest_handoff_history,
    reset_conversation_history_wrappers,
    set_conversation_history_wrappers,
)

__all__ = [
    "Handoff",
    "HandoffHistoryMapper",
    "HandoffInputData",
    "HandoffInputFilter",
    "default_handoff_history_mapper",
    "get_conversation_history_wrappers",
    "handoff",
    "nest_handoff_history",
    "reset_conversation_history_wrappers",
    "set_conversation_history_wrappers",
]
