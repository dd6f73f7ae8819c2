"""Hide the values of environment variables in messages that people look at.

A manifest may pass a variable by value. No pattern can tell whether such a value is a secret, so
only names are shown. The user and password in a repository URL are hidden too.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct
from sandstream_bus.wire.sandboxes import SandboxSpec
from sandstream_providers.git_urls import shown_url

from sandstream_actors.secrets.patterns import MASK

_VARIABLE_KEYS = {"value", "secret"}
_REPOSITORY_KEYS = {"path", "url", "ref"}
_ANCHORS = (b'"environment"', b'"repos"')
_DEEPEST = 30
"""The greatest depth of specs in messages; deeper values come from users and models."""


def without_values(message: Any, depth: int = 0) -> Any:
    """A message, or data that contains messages, without the values of variables. What users and
    models said stays unchanged; but in encoded JSON, anything that has the shape of a spec is
    treated as one.
    """
    if depth > _DEEPEST:
        return message
    match message:
        case Raw():
            return _raw_without_values(message)
        case SandboxSpec():
            return _hidden_spec(message)
        case Struct():
            fields = {
                name: without_values(it, depth + 1)
                for name, it in msgspec.structs.asdict(message).items()
            }
            return msgspec.structs.replace(message, **fields)
        case dict():
            return {key: without_values(it, depth + 1) for key, it in message.items()}
        case list():
            return [without_values(it, depth + 1) for it in message]
        case _:
            return message


def text_without_values(text: str) -> str:
    """The same for a message as text, or for any other text."""
    try:
        value = msgspec.json.decode(text)
        hidden = _hidden(value)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text
    return text if hidden == value else msgspec.json.encode(hidden).decode()


def _hidden_spec(spec: SandboxSpec) -> SandboxSpec:
    environment = {
        name: it if it.value is None else msgspec.structs.replace(it, value=MASK)
        for name, it in spec.environment.items()
    }
    repos = [msgspec.structs.replace(it, url=shown_url(it.url)) for it in spec.plan.repos]
    plan = msgspec.structs.replace(spec.plan, repos=repos)
    return msgspec.structs.replace(spec, environment=environment, plan=plan)


def _raw_without_values(raw: Raw) -> Raw:
    data = bytes(raw)
    if not any(anchor in data for anchor in _ANCHORS):
        return raw
    try:
        value = msgspec.json.decode(data)
        hidden = _hidden(value)
        return raw if hidden == value else Raw(msgspec.json.encode(hidden))
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return Raw(msgspec.json.encode(MASK))  # unreadable, so it cannot be checked


def _hidden(value: Any) -> Any:
    match value:
        case dict():
            return {key: _hidden_member(key, it, value) for key, it in value.items()}
        case list():
            return [_hidden(it) for it in value]
        case _:
            return value


def _hidden_member(key: str, value: Any, around: dict[str, Any]) -> Any:
    if key == "environment" and _is_environment(value):
        return {name: it | {"value": MASK} if "value" in it else it for name, it in value.items()}
    if key == "env" and around.get("do") == "exec" and isinstance(value, dict):
        return dict.fromkeys(value, MASK)
    if key == "repos" and _are_repositories(value):
        return [it | {"url": shown_url(it["url"])} for it in value]
    return _hidden(value)


def _is_environment(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(it, dict) and it.keys() <= _VARIABLE_KEYS for it in value.values()
    )


def _are_repositories(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(it, dict) and it.keys() >= _REPOSITORY_KEYS and isinstance(it["url"], str)
        for it in value
    )
