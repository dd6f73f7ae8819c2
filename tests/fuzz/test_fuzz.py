"""A bounded run of the fuzzer, with a seed of its own; `make fuzz-soak` sends many more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from fuzz.bodies import Bodies
from fuzz.fuzzing import fuzz
from fuzz.grammar import channels, families
from fuzz.shots import Gun, Names, Shot

SEED = 20
MESSAGES = 4_000


@pytest.mark.timeout(240)
def test_honest_runs_notice_nothing(tmp_path: Path) -> None:
    """All end as they should, nobody logs a traceback, and each message is accounted for."""
    report = asyncio.run(
        fuzz(tmp_path / "fleet", seed=SEED, messages=MESSAGES, within_s=45, is_brief=True)
    )
    print(*report.lines(), sep="\n")
    assert not report.problems, "\n".join(report.lines())
    assert all(report.runs[kind] for kind in ("plain", "tool", "child", "approval", "sandbox"))
    fates = report.accounts.fates
    assert fates["parked"] and fates["dropped"] and fates["refused by the server"]
    assert sum(fates.values()) == report.sent


def test_every_documented_family_is_fuzzed() -> None:
    shapes = {tuple("*" if "{" in it else it for it in one.shape.split(".")) for one in families()}
    for row in channels():
        address = row.address.removeprefix("sandstream.").split(".")
        assert tuple("*" if "{" in it else it for it in address) in shapes, row.address


def test_a_seed_makes_the_same_messages_again() -> None:
    def shots(seed: int) -> list[Shot]:
        gun = Gun(seed, Names(nodes=("n",), consumers=("c",)))
        gun.own.append("own-1")
        gun.honest.append("h-1")
        return [gun.next() for _ in range(2_000)]

    first = shots(1)
    assert first == shots(1)
    assert first != shots(2)
    assert {it.family for it in first} == {it.shape for it in families()}
    bodies = Bodies()
    assert bodies.changed(Random(3), "task") == bodies.changed(Random(3), "task")
