"""The runs of the cluster tests: a bit of everything, each short. And what the model says in them.

Of twenty runs ten call tools in one or two turns, several at once, some of them at most once; one
is handed on from agent to agent, two ask other agents, three ask a person, three share a
conversation, one works in a sandbox and is remembered.
"""

from __future__ import annotations

from typing import NamedTuple

from chaos.composition.scenarios import (
    CHAIN,
    CHARGE,
    CLAIM,
    EXPERT,
    LEAVES,
    MANAGED,
    NOTE,
    PLANS,
    TALK,
    Call,
    Plan,
    talk_conversation,
)
from chaos.memory.fleet import fact, memory_scripts
from chaos.sandbox.work import QUICK, Work

from sandstream.testing import ScriptedModel

PAIR = Plan("pair", "talker", ((NOTE, CHARGE),))
BROAD = Plan("broad", "talker", ((NOTE, NOTE, CHARGE, CHARGE),))
ASKS: list[Call] = [("ask_leaf", {"input": leaf.text}) for leaf in LEAVES[:2]]
TWIG = Plan(
    "twig",
    "chief",
    ((NOTE, *ASKS),),
)
SCRIBE = Work("scribe", (QUICK,))
SCRIBE_AGENT = "scribe"
_IN_TRANSCRIPTS = '\\"'
"""Follows a fact in a transcript, where quotes are escaped, and nowhere else."""

_KINDS: tuple[Plan | Work, ...] = (
    *(PAIR, BROAD, TALK, EXPERT, CLAIM),
    *(PAIR, TWIG, TALK, PAIR, SCRIBE),
    *(PAIR, CLAIM, TALK, BROAD, EXPERT),
    *(PAIR, MANAGED, PAIR, TWIG, CHAIN),
)
_ASKS = (CLAIM, MANAGED)


class Job(NamedTuple):
    """One run that somebody asks for."""

    key: str
    kind: Plan | Work
    session: str = ""
    """The conversation that it is part of."""
    fact: str = ""
    """What is remembered of it."""

    @property
    def asks(self) -> bool:
        """Does it wait for a person?"""
        return self.kind in _ASKS

    @property
    def order(self) -> str:
        """What a scribe is told."""
        return f'[{self.kind.name}] "{self.fact}" {self.key}' if isinstance(self.kind, Work) else ""


def jobs(name: str, count: int) -> list[Job]:
    """So many runs, in the order in which they are asked for."""
    found: list[Job] = []
    facts = 0
    for number in range(count):
        kind = _KINDS[number % len(_KINDS)]
        key = f"{name}-{number:04}"
        if kind is TALK:
            found.append(Job(key, kind, session=f"{name}-chat{number // len(_KINDS)}"))
        elif isinstance(kind, Work):
            found.append(Job(key, kind, fact=fact(facts)))
            facts += 1
        else:
            found.append(Job(key, kind))
    return found


def scripted_mix(count: int) -> ScriptedModel:
    """The model for so many runs."""
    plans = {plan.label: plan for plan in (*PLANS.values(), PAIR, BROAD, TWIG)}
    scripts = [plan.conversation() for plan in plans.values()]
    facts = sum(bool(job.fact) for job in jobs("", count))
    return ScriptedModel(
        conversations=[
            *scripts,
            talk_conversation(),
            SCRIBE.conversation(),
            *memory_scripts(facts, after_fact=_IN_TRANSCRIPTS),
        ],
        strict=False,
    )
