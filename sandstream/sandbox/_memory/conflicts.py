"""Checks that memories in one workspace are either identical or do not overlap."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from sandstream_bus.wire.memory_specs import MemoryUse

from sandstream.exceptions import UserError

if TYPE_CHECKING:
    from sandstream.sandbox.bound_agent import BoundAgent


def check_memories(bound: Iterable[BoundAgent]) -> None:
    """Raise :class:`UserError` if two agents would write each other's memory."""
    remembering = [it for it in bound if it.memory_use is not None]
    for first, second in combinations(remembering, 2):
        if first.session.bus_name != second.session.bus_name:
            continue
        problem = _problem(first, second)
        if problem:
            names = f"{first.public.name!r} and {second.public.name!r}"
            raise UserError(f"the memories of agents {names} are in one workspace and {problem}")


def _problem(first: BoundAgent, second: BoundAgent) -> str:
    one, two = first.memory_use, second.memory_use
    assert one is not None
    assert two is not None
    if _directories(one) != _directories(two):
        shared = _shared(one, two)
        if not shared:
            return ""
        return f"share {shared!r} but not both directories: give them layouts apart, or the same"
    if one.scope != two.scope:
        return "have one layout, but two scopes: give each scope a layout of its own"
    configs = [it.memory.generate for it in (first, second) if it.memory and it.memory.generate]
    if len(configs) > 1 and configs[0] != configs[1]:
        return "have one layout, but generate differently: use one MemoryGenerateConfig for both"
    return ""


def _directories(use: MemoryUse) -> tuple[str, str]:
    return use.memories_dir, use.sessions_dir


def _shared(one: MemoryUse, two: MemoryUse) -> str:
    """A directory of one that equals, contains or is inside a directory of the other."""
    for left in _directories(one):
        for right in _directories(two):
            a, b = PurePosixPath(left), PurePosixPath(right)
            if a == b or a in b.parents or b in a.parents:
                return max(left, right, key=len)
    return ""
