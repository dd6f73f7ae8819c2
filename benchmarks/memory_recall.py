"""Recall of planted facts after the first merge and after twenty, with the size limit in force.

Each rollout has one fact in a lot of chatter. The scripted extractor finds a fact only if its
sentence is in its input. The scripted consolidator is a program that really merges the files in its
sandbox, and sometimes loses a part of the handbook. Some facts are later contradicted. A fact is
recalled if its newest value is in the handbook; stale values must not count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from figures import Better, Figure, Series
from lab import Lab, Program
from memory_script import OURS, consolidation

from sandstream.testing import Script, script_for, structured

BOUND = 256 * 1024
WAVES = 20
CHANGED_EVERY = 5
"""A later rollout contradicts every fifth fact."""
CHATTER = "We talked about the weather, the news and where to have lunch, at some length. "
CHATTER_TIMES = 60
_MERGE = r"""
cd memories
merges=$(cat merges.md 2>/dev/null || echo 0); merges=$((merges + 1)); echo $merges > merges.md
awk -v merges=$merges '
  /^rollout_summary_file: / { file = $2 }
  /^FACT / {
    if ($2 in value) next                      # newest first: what comes later is older
    value[$2] = $3; source[$2] = file
    split($2, part, "-"); group = "group-" part[1] % 8
    lines[group] = lines[group] "- fact " $2 " is " $3 " (" file ")\n"
  }
  END {
    for (number = 0; number < 8; number++) {
      group = "group-" number
      if (merges % 3 == 0 && number == merges % 8) continue   # a careless one
      if (group in lines) printf "# %s\n\n%s\n", group, lines[group]
    }
  }' raw_memories.md > MEMORY.md
echo "Facts in groups, see MEMORY.md; merge $merges." > memory_summary.md
"""
_SUPERSEDED = "# Superseded"


@dataclass
class _Fact:
    key: str
    values: list[str]
    """Oldest first."""

    def sentence(self, value: str) -> str:
        return f"note that fact {self.key} is {value} from now on."

    def line(self, value: str) -> str:
        return f"fact {self.key} is {value} "


def measure(lab: Lab, *, quick: bool, loops: list[str]) -> list[Figure]:
    waves, facts = (4, 40) if quick else (WAVES, 200)
    planted = [_Fact(f"{number}-{number * 7919 % 997}", [f"v{number}a"]) for number in range(facts)]
    rollouts = _rollouts(planted)
    memory = _start(lab, _script(rollouts), loops[0])
    use = {"max_bytes": BOUND, "max_raw_memories": 4096}
    seen: list[dict[str, Any]] = []
    told: list[tuple[_Fact, str]] = []
    per_wave = -(-len(rollouts) // waves)
    recalls: list[float] = []
    for first in range(0, len(rollouts), per_wave):
        wave = rollouts[first : first + per_wave]
        texts = [_transcript(fact, value) for fact, value in wave]
        memory.ask(do="end_runs", texts=texts, scopes=["corpus"], first=first, use=use)
        memory.ask(do="settle", scopes=["corpus"], runs=first + len(wave))
        told += wave
        seen.append(memory.ask(do="read", scope="corpus"))
        recalls.append(_recall(told, seen[-1]["handbook"]))
    lab.close_programs()
    return _figures(loops[0], seen, recalls, told, planted)


def _rollouts(planted: list[_Fact]) -> list[tuple[_Fact, str]]:
    """In the order of their ends: facts, and half a corpus later their contradictions."""
    order = [(fact, fact.values[0]) for fact in planted]
    for number, fact in enumerate(planted[: len(planted) // 2 : CHANGED_EVERY]):
        fact.values.append(fact.values[0].replace("a", "b"))
        order.insert(len(planted) // 2 + 2 * number, (fact, fact.values[1]))
    return order


def _transcript(fact: _Fact, value: str) -> str:
    chatter = CHATTER * CHATTER_TIMES
    return f"{chatter}By the way, {fact.sentence(value)} {chatter}"


def _script(rollouts: list[tuple[_Fact, str]]) -> Script:
    found = tuple(
        script_for(
            fact.sentence(value),
            [
                structured(
                    {
                        "rollout_slug": f"fact-{fact.key}",
                        "rollout_summary": f"# Fact {fact.key}\n\nThe user told a fact.",
                        "raw_memory": f"FACT {fact.key} {value}",
                    }
                )
            ],
        )
        for fact, value in rollouts
    )
    nothing = structured({"rollout_slug": "", "rollout_summary": "", "raw_memory": ""})
    return Script(
        conversations=(*found, consolidation(OURS[1], 0.0, _MERGE)),
        default=script_for("", [nothing]),
    )


def _start(lab: Lab, script: Script, loop: str) -> Program:
    common: dict[str, Any] = {
        "loop": loop,
        "base_url": lab.model(script),
        "home": lab.fast_home(),
    }
    lab.start("measured_sandbox_actor", "sandstream", **common).wait_ready()  # it starts the server
    memory = lab.start("measured_memory_actor", "sandstream", **common)
    memory.wait_ready()
    return memory


# --- judging --------------------------------------------------------------------------------------


def _newest(told: list[tuple[_Fact, str]]) -> dict[str, tuple[_Fact, str]]:
    return {fact.key: (fact, value) for fact, value in told}


def _recall(told: list[tuple[_Fact, str]], handbook: str) -> float:
    """The percentage of facts told so far whose latest value is in the handbook."""
    newest = _newest(told).values()
    return 100 * sum(fact.line(value) in handbook for fact, value in newest) / len(newest)


def _stale(told: list[tuple[_Fact, str]], handbook: str) -> float:
    """How many outdated values are in the handbook outside the superseded part."""
    newest = _newest(told)
    counts = handbook.partition(_SUPERSEDED)[0]
    return sum(fact.line(value) in counts for fact, value in told if newest[fact.key][1] != value)


def _figures(
    loop: str,
    seen: list[dict[str, Any]],
    recalls: list[float],
    told: list[tuple[_Fact, str]],
    planted: list[_Fact],
) -> list[Figure]:
    last = seen[-1]
    handbook = str(last["handbook"])
    merges = int(last["merges"])
    early = [(fact, fact.values[-1]) for fact in planted[: len(planted) // len(seen)]]
    superseded = len(re.findall(r"^## group-", handbook.partition(_SUPERSEDED)[2], re.M))

    def figure(
        measure: str,
        unit: str,
        values: list[float],
        *,
        baseline: float | None = None,
        better: Better = "lower",
        wanted_ratio: float | None = None,
        wanted_at_most: float | None = None,
    ) -> Figure:
        return Figure(
            benchmark="memory_recall",
            measure=measure,
            unit=unit,
            loop=loop,
            better=better,
            ours=Series(f"{merges} merges", values),
            baseline=None if baseline is None else Series("first merge", [baseline]),
            wanted_ratio=wanted_ratio,
            wanted_at_most=wanted_at_most,
        )

    return [
        figure(
            f"recall of all {len(_newest(told))} facts",
            "%",
            [recalls[-1]],
            baseline=recalls[0],
            better="higher",
            wanted_ratio=1,
        ),
        figure(
            f"recall of the first {len(early)} facts",
            "%",
            [_recall(early, handbook)],
            baseline=recalls[0],
            better="higher",
            wanted_ratio=1,
        ),
        figure("worst recall after a merge", "%", [min(recalls)], better="higher"),
        figure("outdated values that count", "facts", [_stale(told, handbook)], wanted_at_most=0),
        figure("blocks kept as superseded", "blocks", [superseded]),
        figure(
            "all files, biggest",
            "KB",
            [max(it["bytes"] for it in seen) / 1024],
            wanted_at_most=BOUND / 1024,
        ),
        figure(
            f"transcripts left of {len(told)}",
            "files",
            [float(last["sessions"])],
            baseline=float(seen[0]["sessions"]),
        ),
    ]
