"""One run as a line of a rollout: select its items, remove secrets, limit the size.

Tool output can contain anything. Each text, and then the whole, is cut in the middle, because the
beginning and the end of a run say most about it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Literal, get_args

import msgspec

from sandstream_memory.excerpts import Scrub, clean, shortened

TerminalState = Literal[
    "completed", "interrupted", "cancelled", "failed", "max_turns_exceeded", "guardrail_tripped"
]
TERMINAL_STATES: tuple[str, ...] = get_args(TerminalState)
UNKNOWN_STATE = "unknown"

_KEPT_ROLES = frozenset({"user", "assistant", "tool"})
_KEPT_TYPES = frozenset(
    {
        "apply_patch_call",
        "apply_patch_call_output",
        "computer_call",
        "computer_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "function_call",
        "function_call_output",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "program",
        "program_output",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
_MAX_STRING = 64 * 1024
_MAX_ITEM = 256 * 1024
_MAX_DEPTH = 32
_MAX_ITEMS = 2000
_LONGEST_NAMED_SECRET = 4096
_LIKE_A_SECRET = "mQ4-7tRz9_kW2x"
"""A sample value that scrubbing masks if, and only if, its name marks it as a secret."""
_TIGHTER = (16 * 1024, 4096, 1024, 256)
_LISTS = ("generated_items", "input", "interruptions")
_OMITTED = "omitted"


class Terminal(msgspec.Struct, frozen=True):
    """How a run ended."""

    state: str
    exception_type: str | None = None
    exception_message: str | None = None
    has_final_output: bool = False

    def as_metadata(self) -> dict[str, Any]:
        return {
            "terminal_state": self.state,
            "exception_type": self.exception_type,
            "exception_message": self.exception_message,
            "has_final_output": self.has_final_output,
        }

    @classmethod
    def from_metadata(cls, data: Any) -> Terminal:
        """Parse untrusted metadata: only known states are accepted."""
        if not isinstance(data, dict) or data.get("terminal_state") not in TERMINAL_STATES:
            return cls(UNKNOWN_STATE)
        return cls(
            data["terminal_state"],
            _text_or_none(data.get("exception_type")),
            _text_or_none(data.get("exception_message")),
            data.get("has_final_output") is True,
        )


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# --- what is kept ---------------------------------------------------------------------------------


def is_kept(item: Mapping[str, Any]) -> bool:
    """Keep what people said and what was done, but not reasoning or system instructions."""
    role = item.get("role")
    if isinstance(role, str):
        return role in _KEPT_ROLES
    return item.get("type") in _KEPT_TYPES


def cleaned_items(items: Sequence[Any], scrub: Scrub) -> list[Any]:
    plain = [_plain(item) for item in items]
    kept = [item for item in plain if isinstance(item, Mapping) and is_kept(item)]
    return [
        item if _count(item) else _fitted_item(cleaned_value(item, scrub))
        for item in _without_middle(kept, _MAX_ITEMS)
    ]


def _fitted_item(item: dict[str, Any]) -> dict[str, Any]:
    """Many short texts can also make an item too big: then its JSON is kept as a shortened text."""
    text = msgspec.json.encode(item).decode()
    if len(text) <= _MAX_ITEM:
        return item
    named = {key: item[key] for key in ("type", "role") if isinstance(item.get(key), str)}
    return named | {_OMITTED: shortened(text, _MAX_STRING)}


def cleaned_value(value: Any, scrub: Scrub) -> Any:
    """A JSON value without secrets and without texts of more than 64 KiB."""
    return _cleaned(_plain(value), scrub, 0)


def cleaned_output(value: Any, scrub: Scrub) -> Any:
    """Like ``cleaned_value``, but limited to the size of an item."""
    cleaned = cleaned_value(value, scrub)
    text = msgspec.json.encode(cleaned).decode()
    return cleaned if len(text) <= _MAX_ITEM else shortened(text, _MAX_STRING)


def _cleaned(value: Any, scrub: Scrub, depth: int) -> Any:
    if isinstance(value, str):
        return _storable(clean(value, scrub, _MAX_STRING))
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth >= _MAX_DEPTH:
        return "[nested too deeply]"
    if isinstance(value, Mapping):
        cleaned = {}
        for key, each in islice(value.items(), _MAX_ITEMS):
            name = _storable(clean(str(key), scrub, _MAX_STRING))
            cleaned[name] = _cleaned_member(name, each, scrub, depth)
        return cleaned
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        members = _without_middle(list(value), _MAX_ITEMS)
        return [_cleaned(each, scrub, depth + 1) for each in members]
    return _storable(clean(str(value), scrub, _MAX_STRING))


def _cleaned_member(name: str, value: Any, scrub: Scrub, depth: int) -> Any:
    """Clean a member of an object. Some values are secrets only because of their names."""
    if isinstance(value, str):
        if value and len(value) <= _LONGEST_NAMED_SECRET:
            text = _scrubbed_as(name, value, scrub)
            if text is not None:
                return _storable(scrub(text))
    elif value and not isinstance(value, bool):
        masked = _scrubbed_as(name, _LIKE_A_SECRET, scrub)
        if masked not in (None, _LIKE_A_SECRET):
            return masked  # a number, or a list or object that contains the secret
    return _cleaned(value, scrub, depth + 1)


def _scrubbed_as(name: str, text: str, scrub: Scrub) -> str | None:
    """The text after scrubbing under this name; ``None`` if it cannot be determined."""
    prefix = f"{name}="
    found = scrub(prefix + json.dumps(text))
    if not found.startswith(prefix):
        return None
    try:
        left = json.loads(found[len(prefix) :])
    except ValueError:
        return None
    return left if isinstance(left, str) else None


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _plain(value: Any) -> Any:
    if not isinstance(value, msgspec.Raw):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "[could not be read]"


# --- within bounds --------------------------------------------------------------------------------


def fitted(segment: dict[str, Any], max_bytes: int) -> bytes:
    """The line of a segment, with as much of its texts, then of its items, as fits."""
    line = _line(segment)
    for limit in _TIGHTER:
        if len(line) <= max_bytes:
            return line
        segment = _with_shorter_texts(segment, limit)
        line = _line(segment)
    while len(line) > max_bytes:
        lists = [key for key in _LISTS if len(_list(segment, key)) > 2]
        if not lists:
            break
        longest = max(lists, key=lambda key: len(segment[key]))
        items = segment[longest]
        segment = segment | {longest: _without_middle(items, len(items) // 2)}
        line = _line(segment)
    if len(line) <= max_bytes:
        return line
    names = ("updated_at", "rollout_id", "run", "terminal_metadata")
    return _line({key: segment[key] for key in names if key in segment} | {_OMITTED: "all items"})


def _list(segment: dict[str, Any], key: str) -> list[Any]:
    value = segment.get(key)
    return value if isinstance(value, list) else []


def _without_middle(items: list[Any], most: int) -> list[Any]:
    """The first and last items if there are more than ``most``, and a count of the omitted."""
    if len(items) <= most:
        return items
    already = sum(_count(each) for each in items)
    kept = [each for each in items if not _count(each)]
    end = most // 2
    head, tail = kept[:end], kept[len(kept) - end :]
    went = already + len(kept) - len(head) - len(tail)
    return [*head, {_OMITTED: went}, *tail]


def _count(item: Any) -> int:
    count = item.get(_OMITTED) if isinstance(item, dict) and len(item) == 1 else None
    return count if isinstance(count, int) else 0


def _with_shorter_texts(segment: dict[str, Any], limit: int) -> dict[str, Any]:
    return {
        key: value if key in ("rollout_id", "run", "updated_at") else _shorter(value, limit)
        for key, value in segment.items()
    }


def _shorter(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return shortened(value, limit)
    if isinstance(value, dict):
        return {key: _shorter(each, limit) for key, each in value.items()}
    if isinstance(value, list):
        return [_shorter(each, limit) for each in value]
    return value


def _line(segment: dict[str, Any]) -> bytes:
    return msgspec.json.encode(segment) + b"\n"
