"""What the model says in each kind of composed run, and what must therefore have happened.

A run is identified by the key in its instructions (that of its tree) and the label of its script,
so every agent that is used as a tool has its own script.
"""

from __future__ import annotations

from typing import NamedTuple

from sandstream.testing import Conversation, ScriptedModel, Step, script_for, text, tool_calls

Call = tuple[str, dict[str, object]]

NOTE: Call = ("note", {"text": "hello"})
CHARGE: Call = ("charge", {"cents": 500})
REFUND: Call = ("refund", {"cents": 300})
SLOW: Call = ("slow", {"seconds": 60})
WIDE = 50
"""How many agents are called at once."""
FEW = 4
TALKS = 10
"""The maximum number of runs on one conversation."""


class Plan(NamedTuple):
    """A run: the calls of each answer except the last, which is its output. A handoff is a call
    without a request in the log.
    """

    label: str
    agent: str
    turns: tuple[tuple[Call, ...], ...]

    @property
    def text(self) -> str:
        return f"[{self.label}]"

    @property
    def output(self) -> str:
        return f"done {self.label}"

    def conversation(self) -> Conversation:
        steps: list[Step] = [tool_calls(*calls) for calls in self.turns]
        return script_for(self.text, [*steps, text(self.output)], name=self.label)

    @property
    def wanted_calls(self) -> list[tuple[int, str]]:
        return [
            (turn, name)
            for turn, calls in enumerate(self.turns, 1)
            for name, _ in calls
            if not name.startswith("transfer_to_")
        ]


def _leaf(number: int) -> Plan:
    return Plan(f"leaf-{number:02}", "leaf", ((NOTE, CHARGE),))


def _lazy(number: int) -> Plan:
    return Plan(f"lazy-{number:02}", "leaf", ((SLOW,),))


def _ask(plan: Plan) -> Call:
    return (f"ask_{plan.agent}", {"input": plan.text})


LEAVES = tuple(_leaf(number) for number in range(WIDE))
LAZY = tuple(_lazy(number) for number in range(WIDE))
EXPERT = Plan("expert", "expert", ((CHARGE,), (NOTE,)))
CLAIM = Plan("claim", "clerk", ((NOTE, REFUND),))
MANAGED = Plan("managed", "manager", ((NOTE, _ask(CLAIM)),))
DIRECTED = Plan("directed", "director", ((_ask(MANAGED),),))
TREE = Plan("tree", "chief", ((NOTE, *map(_ask, LEAVES[:FEW]), _ask(EXPERT)),))
WATCHED = Plan("watched", "overseer", (tuple(map(_ask, LEAVES[:2])), (NOTE,)))
GUARDED = Plan("guarded", "gatekeeper", ((NOTE, CHARGE), (NOTE,)))
FAN = Plan("fan", "chief", (tuple(map(_ask, LEAVES)), (NOTE,)))
LONG_TREE = Plan("long-tree", "chief", (tuple(map(_ask, LAZY)),))
CHAIN = Plan(
    "chain",
    "reception",
    (
        (NOTE,),
        (("transfer_to_specialist", {}),),
        (CHARGE, NOTE),
        (("transfer_to_closer", {}),),
        (CHARGE,),
    ),
)
TALK = Plan("talk", "talker", ((NOTE, CHARGE),))
"""One run of a conversation; its script has the answers of all runs, one after the other."""

PLANS = {
    plan.label: plan
    for plan in (
        *(*LEAVES, *LAZY, EXPERT, CLAIM, MANAGED, DIRECTED),
        *(TREE, WATCHED, GUARDED, FAN, LONG_TREE, CHAIN),
    )
}


def talk_conversation() -> Conversation:
    steps: list[Step] = []
    for _ in range(TALKS):
        steps += [tool_calls(NOTE, CHARGE), text(TALK.output)]
    return script_for(TALK.text, steps, name=TALK.label)


def scripted_company() -> ScriptedModel:
    scripts = [plan.conversation() for plan in PLANS.values()]
    return ScriptedModel(conversations=[*scripts, talk_conversation()], strict=False)
