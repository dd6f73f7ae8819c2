"""Every family of subjects, taken from the code that builds them: a new one is fuzzed unasked."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from sandstream_bus.wire.subjects import Subjects

_TABLE = Path(__file__).parents[2] / "docs" / "wire_channels.py"

_ODD = (
    "run.{run}",
    "run.{run}.nothing",
    "run.{run}.cancel.more",
    "run.{run}.approval",
    "sandbox.{sandbox}",
    "sandbox.{sandbox}.nothing",
    "session.{session}.nothing",
    "memory.{scope}.nothing",
    "trace.{trace}.nothing",
    "ask.{user}",
    "ask.{user}.nothing.{run}.cancel",
    "ask.{user}.run.{run}.done",
    "ask.{user}.run.{run}.cancel.more",
    "due.nothing",
    "nothing.{run}",
)
"""Subjects beside the grammar that a stream may take all the same."""
_ASKS = {
    "task": ("task",),
    "cancel": ("cancel.requested",),
    "input": ("input.staged",),
    "approval": ("approval.decided",),
    "merge": ("memory.merge",),
}
"""What users send, by a token of the subject."""


class Family(NamedTuple):
    """One shape of a subject, without the prefix: ``run.{run}.cancel``."""

    shape: str
    messages: tuple[str, ...]
    """The tags of the messages that belong there; a task has the tag ``task``."""

    @property
    def parameters(self) -> list[str]:
        return [it[1:-1] for it in self.shape.split(".") if it.startswith("{")]


def families() -> list[Family]:
    """All that :class:`Subjects` can build, all that the documented table has, and some more."""
    table = channels()
    shapes = {*_built(), *(it.address.removeprefix("sandstream.") for it in table), *_ODD}
    tags = {_shape_of(it.address): _tags(it) for it in table}
    return sorted(
        Family(shape, tags.get(_shape_of(f"sandstream.{shape}")) or _asked(shape))
        for shape in shapes
    )


def _asked(shape: str) -> tuple[str, ...]:
    words = shape.split(".")
    return next((_ASKS[it] for it in words if words[0] == "ask" and it in _ASKS), ())


def channels() -> list[Any]:
    """The documented table."""
    spec = importlib.util.spec_from_file_location("wire_channels", _TABLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(_TABLE.parent))  # it imports its neighbours
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(_TABLE.parent))
    rows: list[Any] = module.channels()
    return rows


def _shape_of(address: str) -> tuple[str, ...]:
    return tuple("*" if it.startswith("{") else it for it in address.split("."))


def _tags(channel: Any) -> tuple[str, ...]:
    return tuple(str(it.__struct_config__.tag or it.__name__.lower()) for it in channel.messages)


def _built() -> set[str]:
    shapes: set[str] = set()
    subjects = Subjects("p")
    for name, method in inspect.getmembers(subjects, inspect.ismethod):
        if name.startswith(("_", "parse", "target")):
            continue
        hints = get_type_hints(method)
        if hints.get("return") is not str:
            continue
        parameters = inspect.signature(method).parameters
        for chosen in itertools.product(
            *(_choices(it, hints[it.name]) for it in parameters.values())
        ):
            shape = method(*chosen).removeprefix("p.")
            if "*" in shape or ">" in shape:
                continue  # a filter of readers
            for parameter in parameters:
                shape = shape.replace(_mark(parameter), f"{{{parameter}}}")
            shapes.add(shape)
    return shapes


def _choices(parameter: inspect.Parameter, hint: Any) -> tuple[Any, ...]:
    """What to build a subject with: a mark that is found again, or each of a few words."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    mark = _mark(parameter.name)
    return ("", mark) if parameter.default == "" else (mark,)


def _mark(name: str) -> str:
    return f"zz{name}zz"
