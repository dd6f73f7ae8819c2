"""What the model says in each kind of run, and what must therefore have happened."""

from __future__ import annotations

from typing import NamedTuple

from sandstream.testing import Conversation, Step, error, script_for, structured, tool_calls

Call = tuple[str, dict[str, object]]

NOTE: Call = ("note", {"text": "hello"})
CHARGE: Call = ("charge", {"cents": 500})
SLOW: Call = ("slow", {"seconds": 1.2})
BRISK: Call = ("slow", {"seconds": 0.2})
BIG: Call = ("big", {"size": 200_000})
TOTAL = 500


class Scenario(NamedTuple):
    """A run: the tool calls of each turn; the turn after the last of them ends it."""

    name: str
    turns: tuple[tuple[Call, ...], ...]
    limited_turn: int | None = None
    """The model answers 429 once before this turn's answer, with a wait that needs a timer."""
    retry_after_s: float = 5.5
    latency_s: float = 0.0
    """How long the model takes for each answer."""

    def conversation(self) -> Conversation:
        steps: list[Step] = [tool_calls(*calls).after(self.latency_s) for calls in self.turns]
        steps.append(structured({"total": TOTAL}).after(self.latency_s))
        if self.limited_turn is not None:
            steps.insert(self.limited_turn - 1, error(429, retry_after=self.retry_after_s))
        return script_for(f"[{self.name}]", steps, name=self.name)

    def input(self, key: str) -> str:
        return f"[{self.name}] {key}"


SHORT = Scenario("short", ((NOTE, CHARGE),))
PLAIN = Scenario("plain", ((NOTE, CHARGE, SLOW), (CHARGE, NOTE)))
LIMITED = Scenario("limited", ((NOTE,), (CHARGE,)), limited_turn=2)
PATIENT = Scenario("patient", ((NOTE,), (CHARGE,)), limited_turn=2, retry_after_s=120.0)
"""Waits longer than a slow machine needs to stop it."""
LARGE = Scenario("large", ((BIG,), (CHARGE,)))
LONG = Scenario("long", ((NOTE, CHARGE), (BRISK,), (CHARGE, NOTE, BRISK), (NOTE,), (CHARGE,)))
MIDDLE = Scenario("middle", ((CHARGE, BRISK), (NOTE, NOTE, CHARGE), (BRISK,)))
ALL = (SHORT, PLAIN, LIMITED, PATIENT, LARGE, LONG, MIDDLE)
