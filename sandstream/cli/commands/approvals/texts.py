"""Questions to people and their answers as text: what is asked, who decided what, how to answer."""

from __future__ import annotations

from collections.abc import Sequence

from sandstream_bus.counts import numbered
from sandstream_bus.wire.messages import ApprovalDecided, ApprovalRequested

from sandstream._inspect.texts import call_text
from sandstream.cli.terminal.render import duration

_MOST_HINTS = 5


def asked_text(asked: ApprovalRequested) -> str:
    """What a person is asked."""
    within = "" if asked.expires_s is None else f"within {duration(asked.expires_s)}: "
    return within + wanted_text(asked)


def wanted_text(asked: ApprovalRequested) -> str:
    """The call as it would be made."""
    if asked.custom:
        return f"{asked.name}: {asked.arguments}"
    return call_text(asked.name, asked.arguments)


def open_text(approvals: Sequence[ApprovalRequested]) -> str:
    """What is waited for, in a few words."""
    names = list(dict.fromkeys(it.name for it in approvals))
    shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    calls = "" if len(approvals) == 1 else f" ({numbered(len(approvals), 'call')})"
    return f"for a person's approval of {shown}{calls}"


def hint_texts(approvals: Sequence[ApprovalRequested], run: str) -> list[str]:
    """The commands that answer."""
    lines = [answer_hint(it.run or run, it.call) for it in approvals[:_MOST_HINTS]]
    if len(approvals) > _MOST_HINTS:
        lines.append(f"… {len(approvals) - _MOST_HINTS} more: sandstream approvals")
    return lines


def answer_hint(run: str, call: str) -> str:
    return f"sandstream approve {run} {call}   (or reject)"


def decided_text(name: str, decided: ApprovalDecided) -> str:
    """Who decided what, and what they said."""
    if decided.expired:
        return f"{name}: expired without an answer"
    text = f"{name} by {decided.by}" if decided.by else name
    if decided.always:
        text += ", also from now on"
    return text if decided.message is None else f"{text}: {decided.message}"
