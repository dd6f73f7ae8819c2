"""Converts a JSON schema to the strict form that a model provider can enforce token by token.

Strict means: every object is closed, every property is required, and only keywords of constrained
decoding are left. A schema that cannot be strict raises here, at definition time, instead of
causing a rejected request during a run.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from sandstream.exceptions import UserError

__all__ = ["ensure_strict_json_schema"]

MAX_DEPTH = 100
MAX_NODES = 100_000

_Path = tuple[str, ...]


def ensure_strict_json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a strict copy of ``schema``; the argument is not changed.

    Args:
        schema: The JSON schema of an object; empty means an object without properties.

    Raises:
        UserError: if the schema has an open object, a root that is not one plain object, or is
            larger than the limits.
    """
    if schema == {}:
        return {"additionalProperties": False, "type": "object", "properties": {}, "required": []}
    _check_size(schema)
    _check_root(schema)
    strict = _Strict(schema).result()
    if strict.get("type") == ["object"]:
        strict["type"] = "object"
    if "anyOf" in strict:
        raise UserError(
            "The root of a strict JSON schema must be one object, but it is a choice (`anyOf`). "
            "Put the choice under a property, or do not use a strict schema."
        )
    return strict


class _Strict:
    """Works on a copy. References are resolved in the original, which is never partly changed."""

    def __init__(self, original: dict[str, Any]) -> None:
        self._original = original
        self._visited = 0

    def result(self) -> dict[str, Any]:
        return self._node(copy.deepcopy(self._original), ())

    def _node(self, node: Any, path: _Path) -> dict[str, Any]:
        if not isinstance(node, dict):
            raise TypeError(
                f"A JSON schema must be an object, but at {_at(path)} there is {node!r}. "
                "Describe that part with a dict such as {'type': 'string'}."
            )
        self._visited += 1
        if len(path) >= MAX_DEPTH or self._visited > MAX_NODES:
            raise _too_big(path)
        self._close_object(node, path)
        self._combinations(node, path)
        if node.get("default", ...) is None:
            del node["default"]
        if "$ref" in node and len(node) > 1:
            return self._inline(node, path)
        return node

    def _children(self, node: dict[str, Any], key: str, path: _Path) -> None:
        node[key] = {
            name: self._node(child, (*path, key, name)) for name, child in node[key].items()
        }

    def _close_object(self, node: dict[str, Any], path: _Path) -> None:
        for key in ("$defs", "definitions"):
            if isinstance(node.get(key), dict):
                self._children(node, key, path)
        properties = node.get("properties")
        if isinstance(properties, dict) and "type" not in node:
            node["type"] = "object"
        if node.get("additionalProperties", False) is not False:
            raise UserError(
                f"A strict JSON schema cannot have objects with free keys, but "
                f"additionalProperties is set at {_at(path)} (a dict type or a model that allows "
                "extra fields). Name the fields in a model, or do not use a strict schema "
                "(strict_mode=False, strict_json_schema=False)."
            )
        if _is_object_type(node.get("type")):
            node["additionalProperties"] = False
        if isinstance(properties, dict):
            node["required"] = list(properties)
            self._children(node, "properties", path)
        if isinstance(node.get("items"), dict):
            node["items"] = self._node(node["items"], (*path, "items"))

    def _combinations(self, node: dict[str, Any], path: _Path) -> None:
        """``oneOf`` becomes ``anyOf``; an ``allOf`` with one member becomes that member."""
        for key in ("anyOf", "oneOf"):
            if isinstance(node.get(key), list):
                members = [
                    self._node(member, (*path, key, str(at)))
                    for at, member in enumerate(node.pop(key))
                ]
                node["anyOf"] = node.get("anyOf", []) + members
        parts = node.get("allOf")
        if not isinstance(parts, list):
            return
        members = [self._node(part, (*path, "allOf", str(at))) for at, part in enumerate(parts)]
        if len(members) == 1:
            del node["allOf"]
            for key, value in members[0].items():
                node.setdefault(key, value)
        else:
            node["allOf"] = members

    def _inline(self, node: dict[str, Any], path: _Path) -> dict[str, Any]:
        """Replace a ``$ref`` that has other keys beside it; those keys override the target's."""
        ref = node.pop("$ref")
        target = self._resolve(ref, path)
        for key, value in target.items():
            if key != "$ref" or value != ref:  # ignore a definition that refers only to itself
                node.setdefault(key, copy.deepcopy(value))
        return self._node(node, (*path, "$ref"))

    def _resolve(self, ref: Any, path: _Path) -> dict[str, Any]:
        if not isinstance(ref, str) or not ref.startswith("#/"):
            raise ValueError(
                f"A $ref must point into the same schema (#/...), but at {_at(path)} it is {ref!r}."
            )
        target: Any = self._original
        for part in ref[2:].split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, dict) or name not in target:
                raise KeyError(f"$ref {ref!r} at {_at(path)} points to nothing in this schema")
            target = target[name]
        if not isinstance(target, dict):
            raise ValueError(f"$ref {ref!r} at {_at(path)} does not point to a schema.")
        return target


def _is_object_type(declared: Any) -> bool:
    return declared == "object" or (isinstance(declared, list) and "object" in declared)


def _check_root(schema: dict[str, Any]) -> None:
    declared = schema.get("type")
    if isinstance(declared, list) and declared != ["object"]:
        raise UserError(
            f"The root of a strict JSON schema must be one plain object, but its type is "
            f"{declared!r}. Use {{'type': 'object'}}, or do not use a strict schema."
        )


def _check_size(schema: dict[str, Any]) -> None:
    nodes = 0
    level: list[Any] = [schema]
    depth = 0
    while level:
        depth += 1
        nodes += len(level)
        if depth > MAX_DEPTH or nodes > MAX_NODES:
            raise _too_big(())
        level = [child for node in level for child in _containers(node)]


def _containers(node: Any) -> Iterator[Any]:
    children = node.values() if isinstance(node, dict) else node
    return (child for child in children if isinstance(child, dict | list))


def _too_big(path: _Path) -> UserError:
    return UserError(
        f"The JSON schema is too large to be made strict: at most {MAX_DEPTH} levels and "
        f"{MAX_NODES} nodes are possible (at {_at(path)}). Flatten the type; if it contains "
        "itself, remove the description or default from the field that does."
    )


def _at(path: _Path) -> str:
    return "/".join(("#", *path))
