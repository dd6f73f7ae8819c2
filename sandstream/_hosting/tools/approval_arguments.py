"""Decides which arguments a ``needs_approval`` function may judge.

The function sees the arguments that the model wrote; the tool gets them after validation. If the
two could differ, or if validation runs the user's code, a person decides instead.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NoReturn

from sandstream.tool import FunctionTool, schema_of

if TYPE_CHECKING:
    from pydantic import BaseModel

_PLAIN = {"any", "none", "bool", "int", "float"}


def judgeable_arguments(tool: FunctionTool, arguments: str) -> dict[str, Any] | None:
    """The arguments as the tool will get them; None if that is not certain."""
    decoded = _json_object(arguments)
    schema = schema_of(tool)
    if decoded is None or schema is None:
        return decoded
    model = schema.params_pydantic_model
    if not _is_only_data(model):
        return None
    try:
        parsed = model.model_validate_json(arguments)
    except ValueError:
        return None
    return decoded if _same(_fields(parsed), decoded, ordered=False) else None


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        decoded = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, dict) else None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _fields(parsed: BaseModel) -> dict[str, Any]:
    fields = type(parsed).model_fields
    return {fields[name].alias or name: value for name, value in vars(parsed).items()}


def _same(left: Any, right: Any, *, ordered: bool = True) -> bool:
    """Equal in value and type, and dicts in the order of their keys."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        keys_fit = list(left) == list(right) if ordered else left.keys() == right.keys()
        return keys_fit and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, float):
        return math.isfinite(left) and left.hex() == right.hex()
    return left is None or (isinstance(left, bool | int | str) and left == right)


# --- does validation run only pydantic's code? ---------------------------------------------------


def _is_only_data(model: type[BaseModel]) -> bool:
    """Whether validation runs only pydantic's code; False for an unknown kind of schema."""
    from pydantic_core import SchemaValidator

    if type(model.__pydantic_validator__) is not SchemaValidator:
        return False  # a pydantic plugin wraps it
    core: Any = model.__pydantic_core_schema__
    try:
        return core["type"] == "model" and core["cls"] is model and _is_data(core["schema"])
    except RecursionError:
        return False


def _is_data(core: Any) -> bool:
    match core["type"]:
        case kind if kind in _PLAIN:
            return True
        case "str":
            return "pattern" not in core  # matching may take forever
        case "model-fields":
            fields = [field["schema"] for field in core["fields"].values()]
            return not core.get("extras_schema") and all(map(_is_data, fields))
        case "list":
            return "items_schema" not in core or _is_data(core["items_schema"])
        case "dict":
            parts = [core[key] for key in ("keys_schema", "values_schema") if key in core]
            return all(map(_is_data, parts))
        case "nullable":
            return _is_data(core["schema"])
        case "union":
            return all(isinstance(it, dict) and _is_data(it) for it in core["choices"])
        case "literal":
            return all(it is None or isinstance(it, bool | int | str) for it in core["expected"])
        case "default":
            return core.get("default_factory") in (None, list, dict) and _is_data(core["schema"])
        case _:
            return False
