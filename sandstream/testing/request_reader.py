"""Read a request's conversation: its text, its first user message, how many answers it has.

Owns the knowledge of how the two APIs represent a conversation. Pure functions over the decoded
body; a body may contain anything, so nothing here raises.
"""

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

GENERATED_CALL_ID_CHARS = len("call_") + 24
"""The length of call ids that the server generates; all but the last two digits name the answer."""

_TEXT_FIELDS = (
    "content",
    "summary",
    "name",
    "arguments",
    "input",
    "output",
    "refusal",
    "tool_calls",
)
_MODEL_ITEMS = frozenset({"reasoning", "mcp_list_tools", "mcp_approval_request", "compaction"})


def conversation_items(body: Json) -> list[Json]:
    """The messages (Chat Completions) or the input items (Responses) of a request."""
    messages = body.get("messages")
    items = messages if messages is not None else body.get("input")
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    if not isinstance(items, list):
        return []
    return [item for item in items if isinstance(item, dict)]


def first_user_text(body: Json) -> str:
    """The text of the first user message, or an empty text."""
    for item in conversation_items(body):
        if item.get("role") == "user":
            return "\n".join(_strings(item.get("content")))
    return ""


def input_text(body: Json) -> str:
    """All text of a request, in order: instructions, messages, tool arguments and outputs."""
    found = list(_strings(body.get("instructions")))
    for item in conversation_items(body):
        for key in _TEXT_FIELDS:
            found.extend(_strings(item.get(key)))
    return "\n".join(found)


def count_answers(body: Json) -> int:
    """How many model answers the conversation in a request already holds.

    An answer is a run of consecutive items that only a model writes. The calls of one answer may
    also be apart, each followed by its output, if their ids are ours: those name their answer.
    """
    count = 0
    inside = False
    seen: set[str] = set()
    for item in conversation_items(body):
        if not _is_from_model(item):
            inside = False
            continue
        answer = _answer_of(item)
        if not inside and answer not in seen:
            count += 1
        if answer:
            seen.add(answer)
        inside = True
    return count


def call_ids(item: Json) -> list[str]:
    """The ids of the calls in an item that need an output."""
    if item.get("role") == "assistant":
        calls = item.get("tool_calls")
        if not isinstance(calls, list):
            return []
        return [str(call.get("id")) for call in calls if isinstance(call, dict)]
    kind = item.get("type")
    if isinstance(kind, str) and kind.endswith("_call") and isinstance(item.get("call_id"), str):
        return [item["call_id"]]
    return []


def output_id(item: Json) -> str | None:
    """The id of the call that an item answers; ``None`` if it is not an output."""
    if item.get("role") == "tool":
        return str(item.get("tool_call_id"))
    kind = item.get("type")
    if isinstance(kind, str) and kind.endswith("_call_output"):
        return str(item.get("call_id"))
    return None


def _is_from_model(item: Json) -> bool:
    if item.get("role") == "assistant":
        return True
    kind = item.get("type")
    return isinstance(kind, str) and (kind.endswith("_call") or kind in _MODEL_ITEMS)


def _answer_of(item: Json) -> str:
    ids = call_ids(item)
    if ids and len(ids[0]) == GENERATED_CALL_ID_CHARS and ids[0].startswith("call_"):
        return ids[0][:-2]
    return ""


def _strings(value: object) -> Iterator[str]:
    """Every text in a content value: a string, a list of parts, a nested object."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)
    elif isinstance(value, dict):
        for key in ("text", "refusal", "output", "function", "name", "arguments", "content"):
            if key in value:
                yield from _strings(value[key])
