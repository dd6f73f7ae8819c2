"""Combines history and new input to a model's input, and determines the part to store.

Pure functions: they read and write no session. A history may contain calls whose run stopped before
their outputs arrived, a limited history may begin between a call and its output, and a retried run
may have stored an item twice. A model's endpoint refuses all of these, so they are removed here,
when the history is read for a model; the session keeps its items.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sandstream_actors.model.vendor_types import plain

from sandstream.exceptions import UserError
from sandstream.items import ItemHelpers, TResponseInputItem
from sandstream.memory.session import SessionInputCallback
from sandstream.memory.session_settings import SessionSettings, latest

if TYPE_CHECKING:
    from sandstream.run_config import ReasoningItemIdPolicy

PLACEHOLDER_ID = "__fake_id__"
"""A placeholder for the id of an item whose provider assigns none."""

_OUTPUT_OF = {
    "program": "program_output",
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "tool_search_call": "tool_search_output",
}
_OUTPUTS = frozenset(_OUTPUT_OF.values())
_KEEP_FIRST_PLACE = frozenset({*_OUTPUT_OF, "mcp_approval_request", "reasoning"})
"""Other items must follow these, so a later copy takes the place of the first."""
_DONE_BY_THE_PROVIDER = frozenset(
    {
        "hosted_tool_call",
        "file_search_call",
        "web_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_list_tools",
        "mcp_call",
        "mcp_approval_request",
        "mcp_approval_response",
    }
)
_ID_NEEDED_BY_CONVERSATIONS = frozenset(
    {
        "file_search_call",
        "web_search_call",
        "computer_call",
        "code_interpreter_call",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_call",
        "item_reference",
        "program",
        "program_output",
    }
)
_NOT_FOR_MODELS = ("_agents_tool_description", "_agents_tool_title", "created_by")


class PreparedInput(NamedTuple):
    """The input that a run begins with."""

    model_input: list[TResponseInputItem]
    to_persist: list[TResponseInputItem]
    """The new part of it."""


async def prepared_input(
    history: Sequence[Any],
    new_input: str | Sequence[Any],
    callback: SessionInputCallback | None = None,
    settings: SessionSettings | Mapping[str, Any] | None = None,
    *,
    reasoning_item_id_policy: ReasoningItemIdPolicy | None = None,
    from_conversations_api: bool = False,
) -> PreparedInput:
    """Append the new input to the history, or let the callback combine them.

    ``from_conversations_api``: the history comes from OpenAI's Conversations API, whose ids differ
    from those of responses.
    """
    limit = SessionSettings.coerce(settings).limit
    past = [_for_models(_item(it)) for it in latest(list(history), limit)]
    if reasoning_item_id_policy == "omit" and not from_conversations_api:
        past = [without_reasoning_id(item) for item in past]
    new = [_item(it) for it in ItemHelpers.input_to_new_input_list(new_input)]
    if callback is None:
        items, old, fresh = past + new, set(range(len(past))), new
    else:
        items, old, fresh = await _merged(past, new, callback, from_conversations_api)
    if from_conversations_api:
        items = [
            _without_conversation_id(item) if place in old else item
            for place, item in enumerate(items)
        ]
    # A callback may keep an output without its call on purpose; a limit only cuts it off.
    cut_off = old if callback is None and limit is not None else set()
    kept = [_for_models(item) for item in without_orphans(items, old, cut_off)]
    return PreparedInput(deduplicated(kept), [_for_models(item) for item in fresh])


def items_to_store(
    items: Sequence[Any],
    *,
    reasoning_item_id_policy: ReasoningItemIdPolicy | None = None,
    for_conversations_api: bool = False,
) -> list[TResponseInputItem]:
    """The items that a turn adds to a session, without duplicates and without refused ids."""
    known = [_for_models(_item(it)) for it in items]
    if for_conversations_api:
        stored = [_for_conversations_api(item) for item in deduplicated(known)]
        return [item for item in stored if not _is_empty_reasoning(item)]
    if reasoning_item_id_policy == "omit":
        known = [without_reasoning_id(item) for item in known]
    return deduplicated(known)


async def _merged(
    past: list[TResponseInputItem],
    new: list[TResponseInputItem],
    callback: SessionInputCallback,
    ignore_ids: bool,
) -> tuple[list[TResponseInputItem], set[int], list[TResponseInputItem]]:
    """The callback's result: all items, the indexes of old ones, and the new ones.

    The callback may drop, change, copy and move items, in its result and in the lists it gets. An
    object that it was given remains old or new. Of all others, an item that equals an item of the
    history is old.
    """
    if not callable(callback):
        raise UserError(f"session_input_callback must be callable; it is {callback!r}")
    past_given, new_given = copy.deepcopy(past), copy.deepcopy(new)
    originals = list(past_given)  # kept alive, so that no other object gets one of their ids
    was_past = {id(item) for item in originals}
    result: Any = callback(past_given, new_given)
    if inspect.isawaitable(result):
        result = await result
    if not isinstance(result, list):
        raise UserError(
            "session_input_callback must return a list of input items; it returned "
            f"{type(result).__name__}"
        )
    new_left = Counter(id(item) for item in new_given)
    past_left = Counter(id(item) for item in past_given)
    equals_left = Counter(_key(item, ignore_ids) for item in past_given)
    old: set[int] = set()
    fresh: list[TResponseInputItem] = []
    for place, item in enumerate(result):
        key = _key(item, ignore_ids)
        if new_left[id(item)] > 0:
            new_left[id(item)] -= 1
            is_old = id(item) in was_past
        elif past_left[id(item)] > 0:
            past_left[id(item)] -= 1
            equals_left[key] -= equals_left[key] > 0
            is_old = True
        elif id(item) in was_past:
            is_old = True
        else:
            is_old = equals_left[key] > 0
            equals_left[key] -= is_old
        if is_old:
            old.add(place)
        else:
            fresh.append(_item(item))
    return [_item(item) for item in result], old, fresh


# --- calls and their outputs ----------------------------------------------------------------------


def without_orphans(
    items: Sequence[TResponseInputItem],
    old: set[int] | None = None,
    cut_off: set[int] | None = None,
) -> list[TResponseInputItem]:
    """Remove calls without an output, with the reasoning that led to them.

    Only items at the indexes ``old`` (None: all) are removed; at the indexes ``cut_off`` also
    outputs without their calls. A call that a program of the model made is removed with its
    program.
    """
    answered = {(it["type"], _call_of(it)) for it in items if it.get("type") in _OUTPUTS}
    programs = _open_programs(items, old, answered)
    searches = _answered_searches(items)
    dropped = {
        place
        for place, item in enumerate(items)
        if old is None or place in old
        if programs.get(_program_of(item) or "") is False
        or (place not in searches and _waits(item, programs, answered))
    }
    lonely = _outputs_without_calls(items, cut_off or set(), dropped)
    gone = dropped | lonely | _reasoning_before(items, dropped)
    return [item for place, item in enumerate(items) if place not in gone]


def _waits(
    item: TResponseInputItem, programs: dict[str, bool], answered: set[tuple[str, str | None]]
) -> bool:
    """Is it a call that lacks its required output?"""
    kind, call = item.get("type"), _call_of(item)
    if kind not in _OUTPUT_OF:
        return False
    if _program_of(item) is not None and _is_pending_shell(item):
        return False
    if kind == "program" and programs.get(call or ""):
        return False
    return call is None or (_OUTPUT_OF[kind], call) not in answered


def _call_of(item: TResponseInputItem) -> str | None:
    call = item.get("call_id")
    return call if isinstance(call, str) else None


def _outputs_without_calls(
    items: Sequence[TResponseInputItem], places: set[int], dropped: set[int]
) -> set[int]:
    called = {
        (_OUTPUT_OF[item["type"]], _call_of(item))
        for place, item in enumerate(items)
        if place not in dropped and item.get("type") in _OUTPUT_OF
    }
    return {
        place
        for place in places - dropped
        if items[place].get("type") in _OUTPUTS
        and (call := _call_of(items[place])) is not None
        and (items[place]["type"], call) not in called
    }


def _reasoning_before(items: Sequence[TResponseInputItem], dropped: set[int]) -> set[int]:
    """Reasoning items before removed items: an endpoint refuses reasoning without what follows."""
    found: set[int] = set()
    next_is_dropped = False
    for place in range(len(items) - 1, -1, -1):
        if items[place].get("type") != "reasoning":
            next_is_dropped = place in dropped
        elif next_is_dropped:
            found.add(place)
    return found


def _open_programs(
    items: Sequence[TResponseInputItem],
    old: set[int] | None,
    answered: set[tuple[str, str | None]],
) -> dict[str, bool]:
    """Programs without an output, and whether one of their calls keeps them open."""
    found: dict[str, bool] = {}
    for place, item in enumerate(items):
        call = _call_of(item)
        if item.get("type") != "program" or call is None:
            continue
        if (old is None or place in old) and ("program_output", call) not in answered:
            found[call] = any(
                _program_of(other) == call and _keeps_going(other, other_place, old)
                for other_place, other in enumerate(items)
            )
    return found


def _keeps_going(item: TResponseInputItem, place: int, old: set[int] | None) -> bool:
    if old is not None:
        return place not in old
    kind = item.get("type")
    return _is_pending_shell(item) or kind in _DONE_BY_THE_PROVIDER or kind in _OUTPUTS


def _program_of(item: TResponseInputItem) -> str | None:
    caller = item.get("caller")
    if not isinstance(caller, dict) or caller.get("type") != "program":
        return None
    program = caller.get("caller_id")
    return program if isinstance(program, str) else None


def _is_pending_shell(item: TResponseInputItem) -> bool:
    return item.get("type") == "shell_call" and item.get("status") in (None, "in_progress")


def _answered_searches(items: Sequence[TResponseInputItem]) -> set[int]:
    """Tool searches may have no call id: each matches the nearest output after it."""
    found: set[int] = set()
    outputs = 0
    for place in range(len(items) - 1, -1, -1):
        if _call_of(items[place]) is not None:
            continue
        if items[place].get("type") == "tool_search_output":
            outputs += 1
        elif items[place].get("type") == "tool_search_call" and outputs:
            found.add(place)
            outputs -= 1
    return found


# --- duplicates -----------------------------------------------------------------------------------


def deduplicated(items: Sequence[TResponseInputItem]) -> list[TResponseInputItem]:
    """Keep only the latest of items with the same identity; items that others must follow stay in
    the place of the first.
    """
    last: dict[str, TResponseInputItem] = {}
    place_of: dict[str, int] = {}
    keys = [_identity(item) for item in items]
    for place, (key, item) in enumerate(zip(keys, items, strict=True)):
        if key is not None:
            last[key] = item
            if key not in place_of or item.get("type") not in _KEEP_FIRST_PLACE:
                place_of[key] = place
    return [
        item if key is None else last[key]
        for place, (key, item) in enumerate(zip(keys, items, strict=True))
        if key is None or place_of[key] == place
    ]


def _identity(item: TResponseInputItem) -> str | None:
    """The identity of an item; None for messages, which may repeat."""
    kind = item.get("type")
    if item.get("role") is not None or kind == "message":
        return None
    call, own = _call_of(item), item.get("id")
    if call is not None and (kind in _OUTPUT_OF or kind in _OUTPUTS):
        return f"call_id:{kind}:{call}"
    if isinstance(own, str) and own != PLACEHOLDER_ID:
        return f"id:{kind}:{own}"
    if call is not None:
        return f"call_id:{kind}:{call}"
    request = item.get("approval_request_id")
    return f"approval_request_id:{kind}:{request}" if isinstance(request, str) else None


# --- single items ---------------------------------------------------------------------------------


def without_reasoning_id(item: TResponseInputItem) -> TResponseInputItem:
    """For endpoints that do not store their answers, and so do not know the id."""
    return _without(item, "id") if item.get("type") == "reasoning" else item


def _for_models(item: TResponseInputItem) -> TResponseInputItem:
    return _without(item, *_NOT_FOR_MODELS)


def _without_conversation_id(item: TResponseInputItem) -> TResponseInputItem:
    if item.get("type") != "message" or item.get("role") != "assistant":
        return item
    return _without(item, *_NOT_FOR_MODELS, "id", "provider_data")


def _for_conversations_api(item: TResponseInputItem) -> TResponseInputItem:
    kind = item.get("type")
    needs_id = kind == "reasoning" or kind in _ID_NEEDED_BY_CONVERSATIONS
    keeps_id = needs_id and item.get("id") != PLACEHOLDER_ID
    return _without(item, *_NOT_FOR_MODELS, "provider_data", *(() if keeps_id else ("id",)))


def _is_empty_reasoning(item: TResponseInputItem) -> bool:
    """The API refuses reasoning without an id and without encrypted content."""
    is_known = item.get("id") or item.get("encrypted_content")
    return item.get("type") == "reasoning" and not is_known


def _without(item: TResponseInputItem, *names: str) -> TResponseInputItem:
    return {name: value for name, value in item.items() if name not in names}


def _item(value: Any) -> TResponseInputItem:
    item = plain(value)
    if not isinstance(item, dict):
        raise UserError(f"an input item must be a dict; {value!r} is a {type(value).__name__}")
    return dict(item)


def _key(item: Any, ignore_ids: bool) -> str:
    known = _for_models(_item(item))
    if ignore_ids:
        known = _without_conversation_id(known)
    return json.dumps(known, sort_keys=True, default=str)
