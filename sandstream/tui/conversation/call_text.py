"""One meaningful line about a call of a tool, and its details. Pure."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from sandstream._inspect.command_answers import command_answer
from sandstream._inspect.rows import Call
from sandstream._inspect.texts import call_text, error_text
from sandstream._inspect.visible_text import clean, one_line
from sandstream.approvals import OpenApproval

_PATCHED = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$", re.MULTILINE)
_PATCH_TOOL = "apply_patch"
_SIGNS = {"Add": "+", "Update": "~", "Delete": "-"}
MOST_DETAIL = 400
"""How many lines of details are shown."""


def title(call: Call) -> str:
    """What the call does, in one line: a command as a shell shows it, the files of a patch."""
    arguments = _arguments(call)
    if call.name == "exec_command" and isinstance(arguments.get("cmd"), str):
        lines = [it.strip() for it in arguments["cmd"].strip().splitlines() if it.strip()]
        more = f"  (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
        return one_line(f"$ {lines[0] if lines else ''}{more}")
    if is_patch(call):
        patch = _lines_of(call)
        files = _PATCHED.findall(patch)
        shown = ", ".join(f"{_SIGNS[how]}{path}" for how, path in files[:4])
        more = f" and {len(files) - 4} more" if files[4:] else ""
        return one_line(f"edit {shown}{more} {_size_of(patch)}")
    return one_line(call_text(call.name, call.arguments))


def asked(question: OpenApproval) -> str:
    """The call that a person is asked about, in one line."""
    return title(Call(name=question.tool, arguments=question.arguments))


def outcome(call: Call) -> str:
    """What came of it, in a few words; empty: nothing yet."""
    if call.error is not None:
        return one_line(call.error.message)
    if call.state != "done" or not call.output:
        return "" if call.state != "rejected" else "rejected"
    answer = command_answer(call.output)
    if answer is None:
        return _brief(call.output)
    lines = answer.output.strip().splitlines()
    how = "" if answer.how == "exit code 0" else f"{answer.how}  "
    return one_line(how + (lines[-1] if lines else "")) + (
        f"  ({len(lines)} lines)" if len(lines) > 1 else ""
    )


def has_failed(call: Call) -> bool:
    """Whether the call ended badly."""
    if call.error is not None or call.state in ("failed", "rejected"):
        return True
    answer = command_answer(call.output) if call.output else None
    return answer is not None and answer.has_failed


def details(call: Call, live: str = "") -> str:
    """Everything that is known of the call, for the unfolded block."""
    arguments = _arguments(call)
    parts: list[str] = []
    if call.name == "exec_command" and isinstance(arguments.get("cmd"), str):
        parts.append("$ " + arguments["cmd"].strip())
    elif is_patch(call):
        parts.append(call.arguments)
    elif arguments:
        parts += [f"{key}: {_value(value)}" for key, value in arguments.items()]
    elif call.arguments:
        parts.append(call.arguments)
    if call.error is not None:
        parts.append(error_text(call.error))
    answer = command_answer(call.output) if call.output else None
    if answer is not None:
        parts.append(f"[{answer.how}]\n{answer.output.rstrip()}")
    elif call.output:
        parts.append(call.output)
    elif live:
        parts.append(live)
    return bounded(clean("\n".join(parts)))


def bounded(text: str, most: int = MOST_DETAIL) -> str:
    """The first and the last lines of a long text."""
    lines = text.split("\n")
    if len(lines) <= most:
        return text
    head, tail = most * 2 // 3, most // 3
    gap = f"… {len(lines) - head - tail} lines are left out …"
    return "\n".join([*lines[:head], gap, *lines[-tail:]])


def shortened(shown: str, most: int) -> str:
    """The text, cut with … to so many characters; 0: as it is."""
    return shown if not most or len(shown) <= most else shown[: most - 1] + "…"


def tail_of(live: str, most: int) -> list[str]:
    """The last lines of live output. A carriage return overwrites its line, as on a terminal."""
    lines = [it.rstrip("\r").rsplit("\r", 1)[-1] for it in live.rstrip("\n").split("\n")]
    return [clean(it).expandtabs(4) for it in lines[-most:]] if live else []


def is_patch(call: Call) -> bool:
    """Whether the call changes files by a patch. In the arguments of another tool such text means
    nothing: the model chose it, and a person who is asked must see which tool it wants.
    """
    return call.name == _PATCH_TOOL and bool(_PATCHED.search(_lines_of(call)))


def _lines_of(call: Call) -> str:
    return call.arguments.replace("\\n", "\n")


def _size_of(patch: str) -> str:
    """How many lines a patch adds and removes; empty: none."""
    lines = patch.split("\n")
    counts = {sign: sum(it.startswith(sign) for it in lines) for sign in "+-"}
    return " ".join(f"{sign}{number}" for sign, number in counts.items() if number)


def _brief(output: str) -> str:
    lines = output.strip().splitlines()
    if not lines:
        return ""
    more = f"  ({len(lines)} lines)" if len(lines) > 1 else ""
    return one_line(lines[0])[:200] + more


def _arguments(call: Call) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(call.arguments or "{}")
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
