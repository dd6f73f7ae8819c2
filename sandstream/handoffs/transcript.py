"""Writes a conversation as one readable assistant message, and parses it.

Each turn is a numbered line between two markers. Turns that do not fit on one line, or are not
plain messages, are JSON. Parsing is for conversations that are handed off twice: the second summary
then lists the turns of the first instead of quoting it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from sandstream.items import TResponseInputItem

Markers = tuple[str, str]

PREAMBLE = "For context, here is the conversation so far between the user and the previous agent:"
READABLE_PREAMBLES = frozenset({PREAMBLE, "For context, here is the conversation so far:"})
NOTHING_YET = "(no previous turns recorded)"
ROLES = frozenset({"user", "assistant", "system", "developer"})

NOT_INPUT = frozenset({"_agents_tool_description", "_agents_tool_title", "created_by"})
"""Fields of stored items that are not valid input of an endpoint."""


def without_metadata(item: TResponseInputItem) -> TResponseInputItem:
    return {key: value for key, value in item.items() if key not in NOT_INPUT}


def summary_message(items: Sequence[TResponseInputItem], markers: Markers) -> TResponseInputItem:
    """One assistant message that lists the items."""
    start, end = markers
    lines = [f"{number}. {_line(item)}" for number, item in enumerate(items, start=1)]
    content = "\n".join([PREAMBLE, start, *(lines or [NOTHING_YET]), end])
    return {"role": "assistant", "content": content}


def flattened(items: Sequence[TResponseInputItem], markers: Markers) -> list[TResponseInputItem]:
    """Copies of the items, with the turns of each summary in place of the summary."""
    result: list[TResponseInputItem] = []
    for item in items:
        turns = _turns_of_summary(item, markers)
        result.extend([deepcopy(item)] if turns is None else turns)
    return [without_metadata(item) for item in result]


# Writing


def _line(item: TResponseInputItem) -> str:
    item = {key: value for key, value in without_metadata(item).items() if key != "provider_data"}
    content = item.get("content")
    fits_on_a_line = content is None or (
        isinstance(content, str) and "\n" not in content and "\r" not in content
    )
    if isinstance(item.get("role"), str) and fits_on_a_line:
        return _labelled(item)
    try:
        return json.dumps(item, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        return _labelled(item)


def _labelled(item: TResponseInputItem) -> str:
    """``role: content`` for a message, ``type: JSON`` for any other item."""
    role = item.get("role")
    if not isinstance(role, str):
        rest = {key: value for key, value in item.items() if key != "type"}
        return f"{item.get('type', 'item')}: {_text(rest)}"
    name = item.get("name")
    label = f"{role} ({name})" if isinstance(name, str) and name else role
    content = item.get("content")
    return f"{label}: {'' if content is None else _text(content)}"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except TypeError:  # a key that is not valid in JSON
        return str(value)


# Reading


def _turns_of_summary(
    item: TResponseInputItem, markers: Markers
) -> list[TResponseInputItem] | None:
    """The turns in a summary; None if the item is not a summary with these markers."""
    content = item.get("content")
    if item.get("role") != "assistant" or not isinstance(content, str):
        return None
    preamble, _, block = content.partition("\n")
    start, end = f"{markers[0]}\n", f"\n{markers[1]}"
    if preamble not in READABLE_PREAMBLES:
        return None
    if not (block.startswith(start) and block.endswith(end)):
        return None
    turns = [_turn(record) for record in _records(block[len(start) : -len(end)])]
    return [turn for turn in turns if turn is not None]


def _records(body: str) -> list[str]:
    """The records of a block: numbered lines, each with the unnumbered lines that follow it."""
    records: list[list[str]] = []
    for line in body.splitlines():
        if not line.strip():
            continue
        goes_on = bool(records) and _is_numbered(records[-1][0]) and not _is_numbered(line)
        if goes_on:
            records[-1].append(line.rstrip())
        else:
            records.append([line.strip()])
    return ["\n".join(record) for record in records]


def _is_numbered(line: str) -> bool:
    number, dot, _ = line.lstrip().partition(".")
    return bool(dot) and number.isdigit()


def _turn(record: str) -> TResponseInputItem | None:
    """One listed turn as an item; None for prose that is neither JSON nor labelled."""
    text = record.strip()
    if _is_numbered(text):
        text = text.partition(".")[2].lstrip()
    item = _json_object(text)
    if item is not None:
        return item
    label, colon, content = (part.strip() for part in text.partition(":"))
    role, name = _role_and_name(label)
    if not colon and not _is_role_alone(text):
        return None
    if not label:
        return None
    item = None if role in ROLES else _json_object(content)
    if item is not None:
        return {**item, "type": role}
    # The content is always present, even if empty: endpoints recognize a message by it.
    return {"role": role, **({"name": name} if name else {}), "content": content}


def _json_object(text: str) -> TResponseInputItem | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    return {key: part for key, part in without_metadata(value).items() if key != "provider_data"}


def _role_and_name(label: str) -> tuple[str, str | None]:
    """Split ``role (name)``."""
    role, bracket, name = label.rpartition("(")
    if not (bracket and label.endswith(")") and name[:-1].strip()):
        return label, None
    return role.strip() or "developer", name[:-1].strip()


def _is_role_alone(text: str) -> bool:
    """Old summaries list an empty turn as its role, optionally with a name, without a colon."""
    role, bracket, _ = text.rpartition("(")
    return (role.strip() if bracket and text.endswith(")") else text) in ROLES
