"""Checks of JSON requests against the fields that the vendor declares.

A wrong type or a missing field is answered by the vendor with an error. A field that it does not
know is ignored by the vendor; here it is noted as a mistake of the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MapOf:
    """An object with any keys."""

    value: Any


@dataclass(frozen=True)
class ListOf:
    item: Any


@dataclass(frozen=True)
class Object:
    """Fields by name; a name that ends with ``!`` is required."""

    fields: Mapping[str, Any]


ANY = object()
"""Not looked into."""


@dataclass
class Findings:
    unknown: list[str]
    wrong: list[str]


def check(value: Any, shape: Any) -> Findings:
    """Compare a decoded request with its shape."""
    findings = Findings([], [])
    _check(value, shape, "", findings)
    return findings


def _check(value: Any, shape: Any, where: str, findings: Findings) -> None:
    if shape is ANY:
        return
    if isinstance(shape, Object):
        if not isinstance(value, dict):
            findings.wrong.append(f"{where or 'body'} must be an object")
            return
        _check_object(value, shape, where, findings)
    elif isinstance(shape, MapOf):
        if not isinstance(value, dict):
            findings.wrong.append(f"{where} must be an object")
            return
        for key, item in value.items():
            _check(item, shape.value, f"{where}.{key}", findings)
    elif isinstance(shape, ListOf):
        if not isinstance(value, list):
            findings.wrong.append(f"{where} must be an array")
            return
        for number, item in enumerate(value):
            _check(item, shape.item, f"{where}[{number}]", findings)
    elif not _is(value, shape):
        findings.wrong.append(f"{where} must be {shape.__name__}, not {type(value).__name__}")


def _check_object(value: dict[str, Any], shape: Object, where: str, findings: Findings) -> None:
    known = {name.rstrip("!"): (inner, name.endswith("!")) for name, inner in shape.fields.items()}
    for name, (_, required) in known.items():
        if required and value.get(name) is None:
            findings.wrong.append(f"{where}.{name} is required".lstrip("."))
    for name, item in value.items():
        if name not in known:
            findings.unknown.append(f"{where}.{name}".lstrip("."))
        elif item is not None:
            _check(item, known[name][0], f"{where}.{name}".lstrip("."), findings)


def _is(value: Any, kind: type) -> bool:
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)
