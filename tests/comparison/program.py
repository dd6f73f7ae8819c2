"""What a program of the comparison is: a function of the SDK, and the model's script for it.

Imported by both interpreters, so it imports neither SDK and nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MODEL = "gpt-4.1"
"""A model without implicit settings, so that programs show what they set themselves."""


@dataclass
class Probe:
    """What a program gets besides the SDK: its input, and a place for what it sees."""

    name: str
    base_url: str
    notes: list[Any] = field(default_factory=list)
    home: Path = field(default_factory=Path.cwd)

    @property
    def input(self) -> str:
        """The user's message; the scripted model knows the program by it."""
        return f"Please do <{self.name}>."

    @property
    def folder(self) -> Path:
        """A directory of the program's own on this machine."""
        folder = self.home / self.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def note(self, *values: Any) -> None:
        self.notes.append(list(values))


Function = Callable[[Any, Probe], Any]
"""Asynchronous, or not, as the program needs it."""


@dataclass
class Program:
    name: str
    function: Function
    script: Callable[[Any], list[Any]]
    """From the module `sandstream.testing` to the steps."""
    topic: str
    """The file that it is in."""
    has_sandbox: bool = False
    """Its report is compared without what is each SDK's own: prompts, descriptions, roots."""


PROGRAMS: dict[str, Program] = {}


def program(script: Callable[[Any], list[Any]]) -> Callable[[Any], Any]:
    """Registers a program with the script of its model."""

    def register(function: Any) -> Any:
        name = function.__name__
        assert name not in PROGRAMS, name
        topic = function.__module__.rpartition(".")[2]
        PROGRAMS[name] = Program(name, function, script, topic)
        return function

    return register


def load() -> dict[str, Program]:
    """All programs, in the order of the files."""
    import importlib
    import pkgutil

    from comparison import programs

    for info in sorted(pkgutil.iter_modules(programs.__path__), key=lambda it: it.name):
        importlib.import_module(f"comparison.programs.{info.name}")
    return PROGRAMS
