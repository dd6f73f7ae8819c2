"""The testing kit: a scripted model server that speaks OpenAI's two APIs over real HTTP.

Start with `ScriptedModel` and the step builders; README.md beside this file shows an example.
"""

from sandstream.testing.journal import Request, read_journal
from sandstream.testing.script import Conversation, Script, ScriptError, script_for
from sandstream.testing.scripted_model import ScriptedModel
from sandstream.testing.steps import (
    Step,
    Usage,
    answer,
    custom_tool_call,
    drop_connection,
    error,
    incomplete,
    malformed,
    reasoning,
    refusal,
    status_failed,
    structured,
    text,
    tool_call,
    tool_calls,
)

__all__ = [
    "Conversation",
    "Request",
    "Script",
    "ScriptError",
    "ScriptedModel",
    "Step",
    "Usage",
    "answer",
    "custom_tool_call",
    "drop_connection",
    "error",
    "incomplete",
    "malformed",
    "read_journal",
    "reasoning",
    "refusal",
    "script_for",
    "status_failed",
    "structured",
    "text",
    "tool_call",
    "tool_calls",
]
