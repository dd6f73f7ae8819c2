"""Every public name says what it is for, and documents its parameters as they are."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import sandstream
from sandstream import sandbox

MOST_USED = [
    "Agent",
    "Agent.as_tool",
    "BusSession",
    "Client.runs",
    "Client.submit",
    "RunConfig",
    "Runner.run",
    "Runner.run_streamed",
    "Runner.run_sync",
    "SQLiteSession",
    "SandboxAgent",
    "function_tool",
]
"""Their docstrings have arguments and an example."""


def _public() -> Iterator[tuple[str, Any]]:
    """All public classes and functions, with the public methods of the classes."""
    for module in (sandstream, sandbox):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isroutine(thing):
                yield name, thing
            if inspect.isclass(thing):
                for base in thing.__mro__:
                    if base.__module__.startswith("sandstream"):
                        yield from _methods(name, base)


def _methods(name: str, owner: type) -> Iterator[tuple[str, Any]]:
    for method, value in vars(owner).items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        is_ours = inspect.isfunction(function) and function.__module__.startswith("sandstream")
        if is_ours and not method.startswith("_"):
            yield f"{name}.{method}", inspect.getattr_static(owner, method)


PUBLIC = dict(_public())


def _doc(name: str) -> str:
    """The docstring of a name. What dataclasses write themselves does not count."""
    thing = PUBLIC[name]
    by_itself = f"{name.rpartition('.')[2]}("
    if dataclasses.is_dataclass(thing) and str(thing.__doc__).startswith(by_itself):
        return ""
    owner, _, method = name.rpartition(".")
    if owner:
        return inspect.getdoc(getattr(PUBLIC[owner], method)) or ""
    return inspect.cleandoc(thing.__doc__ or "")


def _documented(doc: str) -> list[str]:
    """The names in the section ``Args``."""
    found = re.search(r"^Args:\n((?:(?: .*)?\n)+)", f"{doc}\n\n", re.MULTILINE)
    return re.findall(r"^    \*{0,2}(\w+):", found[1], re.MULTILINE) if found else []


def _parameters(name: str) -> list[str]:
    owner, _, method = name.rpartition(".")
    thing = getattr(PUBLIC[owner], method) if owner else PUBLIC[name]
    return [it for it in inspect.signature(thing).parameters if it != "self"]


def test_there_are_public_names() -> None:
    assert set(MOST_USED) <= set(PUBLIC)
    assert len(PUBLIC) > 300


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name in PUBLIC if not _doc(name)] == []


def test_documented_arguments_are_the_parameters() -> None:
    wrong = {}
    for name in PUBLIC:
        documented = _documented(_doc(name))
        parameters = _parameters(name) if documented else []
        inherited = _parameters("Agent") if name == "SandboxAgent" else []
        if documented != [it for it in parameters if it not in inherited]:
            wrong[name] = documented, parameters
    assert wrong == {}


@pytest.mark.parametrize("name", MOST_USED)
def test_the_most_used_names_have_arguments_and_an_example(name: str) -> None:
    assert _documented(_doc(name))
    assert "\nExample:\n" in _doc(name)


def test_the_arguments_are_found() -> None:
    args = "Args:\n    one: It is\n        long: yes.\n\n    two: Other."
    doc = f"What.\n\n{args}\n\nReturns:\n    three: No."
    assert _documented(doc) == ["one", "two"]
    assert _documented("What.\n\nReturns:\n    three: No.") == []
