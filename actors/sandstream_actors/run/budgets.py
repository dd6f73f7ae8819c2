"""Budgets as data: of two the stricter one, and when the time of one is over."""

from __future__ import annotations

import time

import msgspec
from sandstream_bus.wire.specs import Budget


def smaller(one: Budget | None, other: Budget | None) -> Budget | None:
    """The stricter of two budgets, limit by limit."""
    if one is None or other is None:
        return one or other
    limits: dict[str, float | int | None] = {}
    for name in Budget.__struct_fields__:
        known = [it for it in (getattr(one, name), getattr(other, name)) if it is not None]
        limits[name] = min(known) if known else None
    return msgspec.convert(limits, Budget)


def with_deadline(budget: Budget) -> Budget:
    """The budget of a run that starts now."""
    if budget.seconds is None or budget.deadline is not None:
        return budget
    return msgspec.structs.replace(budget, deadline=time.time() + budget.seconds)
