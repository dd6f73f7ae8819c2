"""Imports nats-py without aiohttp, which only addresses that begin with ``ws://`` need.

nats-py imports aiohttp at once if it is installed. That takes longer than all of its other imports,
and every program and every actor would pay for it. ``nats/__init__.py`` calls
:func:`import_nats` before any module of ours imports nats-py.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

_LATER = ("aiohttp", "multidict")
"""What nats-py imports for websockets, in this order."""


def import_nats() -> None:
    """Import nats-py; its websockets import aiohttp when a program uses them.

    Does nothing if the program has imported aiohttp or nats-py already.
    """
    if _LATER[0] in sys.modules or "nats" in sys.modules:
        return
    refusal = _Refusal()
    sys.meta_path.insert(0, refusal)
    try:
        transport = importlib.import_module("nats.aio.transport")
    finally:
        sys.meta_path.remove(refusal)
    for name in _LATER:
        if importlib.util.find_spec(name) is not None:
            setattr(transport, name, _OnDemand(name))


class _Refusal(MetaPathFinder):
    """Hides aiohttp from the thread that imports nats-py. Other threads can import it meanwhile."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == _LATER[0] and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is imported later", name=name)


class _OnDemand(ModuleType):
    """Stands for a module, and imports it when a name of it is used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)
