"""The arguments of a JSON tool, as a model wrote them.

Models are imprecise: ``"10"`` is accepted for a number. Invalid arguments are reported by the names
of the fields; the values are not repeated.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


class BadArguments(Exception):
    """The text for the model."""

    def __init__(self, fields: list[str]) -> None:
        where = f" for {', '.join(fields)}" if fields else ""
        super().__init__(f"Invalid tool arguments{where}. Check the tool schema and try again.")


def parse_arguments(text: str, shape: type[T]) -> T:
    """Decode the arguments as ``shape``, which defines types, limits and defaults.

    Raises:
        BadArguments: with all fields that are wrong or missing.
    """
    try:
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise BadArguments([]) from None
    if not isinstance(given, dict):
        raise BadArguments([])
    values: dict[str, Any] = {}
    wrong = []
    for field in msgspec.structs.fields(shape):
        if field.name not in given:
            if field.required:
                wrong.append(field.name)
            continue
        try:
            values[field.name] = msgspec.convert(given[field.name], field.type, strict=False)
        except msgspec.ValidationError:
            wrong.append(field.name)
    if wrong:
        raise BadArguments(wrong)
    return shape(**values)
