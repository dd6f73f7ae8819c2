"""Converts the argument schemas of a server's tools for models."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from typing import Any

from sandstream.strict_schema import ensure_strict_json_schema

logger = logging.getLogger(__name__)


def tool_schema(schema: dict[str, Any], *, strict: bool) -> tuple[dict[str, Any], bool]:
    """A copy of the schema, and whether it is strict.

    It is made strict only if it then accepts the same values, except that all declared properties
    become required; otherwise it is unchanged.
    """
    loose = copy.deepcopy(schema)
    loose.setdefault("properties", {})
    if not strict:
        return loose, False
    says_nothing = schema == {}
    if not says_nothing and any(_is_open(node) for node in _nodes(loose)):
        return loose, False
    try:
        converted = ensure_strict_json_schema({} if says_nothing else loose)
    except Exception as error:  # noqa: BLE001 - a foreign schema may be broken in any way
        logger.info(
            "The schema of an MCP tool cannot be made strict", extra={"error": type(error).__name__}
        )
        return loose, False
    if any("$ref" in node for node in _nodes(converted)):
        return loose, False
    return converted, True


def _is_open(node: dict[str, Any]) -> bool:
    """An object that declares no properties and forbids none: it accepts anything."""
    kind = node.get("type")
    is_object = kind == "object" or (isinstance(kind, list) and "object" in kind)
    is_object = is_object or (kind is None and "properties" in node)
    return (
        is_object and not node.get("properties") and node.get("additionalProperties") is not False
    )


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    """The schema and all schemas in it."""
    pending = [node]
    while pending:
        current = pending.pop()
        if not isinstance(current, dict):
            continue
        yield current
        for key in ("properties", "$defs", "definitions"):
            if isinstance(current.get(key), dict):
                pending.extend(current[key].values())
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(current.get(key), list):
                pending.extend(current[key])
        pending.append(current.get("items"))
