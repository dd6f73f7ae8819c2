"""Refuses what the real API refuses, where a faulty agent loop would make mistakes.

Owns the checks and the texts of OpenAI's 400 answers: missing parameters, calls without output,
outputs without call, duplicate items, reasoning separated from what it led to. State that the API
stores for the client (`previous_response_id`, `conversation`) is unknown here and not checked.
"""

from typing import NamedTuple

from sandstream.testing.journal import Api
from sandstream.testing.request_reader import Json, call_ids, output_id


class Problem(NamedTuple):
    """Why a request is invalid, in the parts of OpenAI's error object."""

    message: str
    param: str | None = None
    code: str | None = None


def find_problem(api: Api, body: Json) -> Problem | None:
    """The first problem for which the real API would refuse this request."""
    model = body.get("model")
    if model is None and not (api == "responses" and body.get("prompt")):
        return _missing("model")
    if model is not None and not isinstance(model, str):
        return Problem("Invalid type for 'model': expected a string.", "model", "invalid_type")
    return _chat_problem(body) if api == "chat" else _responses_problem(body)


def _responses_problem(body: Json) -> Problem | None:
    given = body.get("input")
    continues = bool(body.get("previous_response_id") or body.get("conversation"))
    if given is None:
        if continues or body.get("prompt"):
            return None
        return _missing("input")
    if isinstance(given, str):
        return None
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        return Problem(
            "Invalid type for 'input': expected a string or an array of objects.",
            "input",
            "invalid_type",
        )
    items: list[Json] = given
    return _repeated_item(items) or _lone_reasoning(items) or _unpaired(items, continues)


def _unpaired(items: list[Json], continues: bool) -> Problem | None:
    """Calls and outputs must match in kind: a function's output does not answer a custom tool's
    call.
    """
    open_calls: dict[str, str] = {}
    for item in items:
        kind = str(item.get("type"))
        for call_id in call_ids(item):
            open_calls[call_id] = kind
        answered = output_id(item)
        if answered is None:
            continue
        if open_calls.get(answered) == kind.removesuffix("_output"):
            del open_calls[answered]
        elif not continues:
            said = kind.replace("_", " ")
            return Problem(f"No tool call found for {said} with call_id {answered}.", "input")
    for call_id, kind in open_calls.items():
        said = kind.replace("_", " ")
        return Problem(f"No tool output found for {said} {call_id}.", "input")
    return None


def _repeated_item(items: list[Json]) -> Problem | None:
    seen: set[str] = set()
    for item in items:
        item_id = item.get("id")
        if not isinstance(item_id, str) or item.get("type") == "item_reference":
            continue
        if item_id in seen:
            return Problem(
                f"Duplicate item found with id {item_id}. Remove duplicate items from your input "
                "and try again.",
                "input",
            )
        seen.add(item_id)
    return None


def _lone_reasoning(items: list[Json]) -> Problem | None:
    for index, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        following = items[index + 1] if index + 1 < len(items) else {}
        kind = str(following.get("type", "message"))
        if following.get("role") == "assistant" or kind == "reasoning" or kind.endswith("_call"):
            continue
        if kind == "item_reference":
            continue
        return Problem(
            f"Item '{item.get('id')}' of type 'reasoning' was provided without its required "
            "following item.",
            "input",
        )
    return None


def _chat_problem(body: Json) -> Problem | None:
    messages = body.get("messages")
    if messages is None:
        return _missing("messages")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        return Problem(
            "Invalid type for 'messages': expected an array of objects.", "messages", "invalid_type"
        )
    if not messages:
        return Problem(
            "Invalid 'messages': empty array. Expected an array with minimum length 1.",
            "messages",
            "empty_array",
        )
    waiting: list[str] = []
    for index, message in enumerate(messages):
        answered = output_id(message)
        if answered is not None:
            if answered not in waiting:
                return Problem(
                    "Invalid parameter: messages with role 'tool' must be a response to a "
                    "preceeding message with 'tool_calls'.",
                    f"messages.[{index}].role",
                )
            waiting.remove(answered)
            continue
        if waiting:
            return _unanswered(waiting, index)
        waiting = call_ids(message)
    return _unanswered(waiting, len(messages)) if waiting else None


def _unanswered(waiting: list[str], index: int) -> Problem:
    return Problem(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to "
        "each 'tool_call_id'. The following tool_call_ids did not have response messages: "
        + ", ".join(waiting),
        f"messages.[{index}].role",
    )


def _missing(name: str) -> Problem:
    return Problem(f"Missing required parameter: '{name}'.", name, "missing_required_parameter")
