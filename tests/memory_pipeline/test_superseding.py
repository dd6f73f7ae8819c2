"""What a merge drops is kept, block by block; what it updates or condenses leaves nothing."""

from __future__ import annotations

import random

import pytest
from sandstream_bus.wire.memories import Rollout
from sandstream_memory.handbook import is_rollout_file
from sandstream_memory.selection import Selection
from sandstream_memory.statements import Said, statements
from sandstream_memory.supersession import MAX_SUPERSEDED_BYTES, completed_handbook


def rollout(name: str) -> Rollout:
    file = f"rollout_summaries/{name}_s.md"
    return Rollout(id=name, name=name, runs=[f"run-{name}"], slug="s", summary_file=file)


ROLLOUTS = {name: rollout(name) for name in "abc"}
SELECTION = Selection(selected=["c", "b", "a"], added=["c"], retained=["b", "a"])
SOURCE_A = "Sources: rollout_summaries/a_s.md"


def merged(before: str, after: str, selection: Selection = SELECTION) -> tuple[str, list[str]]:
    return completed_handbook(
        before, after, selection=selection, rollouts=ROLLOUTS, max_bytes=1 << 19
    )


def block(title: str, *items: str, sources: str = SOURCE_A) -> str:
    return "\n".join([f"# {title}", "", *(f"- {each}" for each in items), "", sources, ""])


ADA = block("Ada", "ships to Oslo", "pays by card", "likes tea")
BUILDS = block("Builds", "run make check first", "wheels are built by hatch", "tests need nats")


def test_a_block_is_judged_by_itself_though_its_source_is_named_elsewhere() -> None:
    text, notes = merged(f"{ADA}\n{BUILDS}", ADA)
    assert "# Superseded" in text and "## Builds" in text and "- tests need nats" in text
    assert notes == ["kept as superseded: Builds"]
    text, notes = merged(f"{ADA}\n{BUILDS}", "# Ada\nSources: a\n")
    assert "## Ada" in text and "## Builds" in text and len(notes) == 2


def test_what_a_block_takes_over_keeps_its_sources() -> None:
    """The agent that merged forgot them all: what came from a is not from c now."""
    rewritten = "# Ada\n\n- ships to Oslo\n- pays by card\n- likes tea\n- is called Ada\n"
    text, notes = merged(ADA, rewritten)
    c, a = (f"rollout_summaries/{name}_s.md (runs run-{name})" for name in "ca")
    assert text.endswith(f"Sources: {c}; {a}\n")
    assert notes == ["sources were added to: Ada"]
    assert "ships to Oslo" in text and "Superseded" not in text
    moved = "# People\n\n- Ada ships to Oslo\n- pays by card\n- likes tea\n"
    text, _ = merged(ADA, f"{moved}\n# Builds\n\n- run make\n")
    assert f"- likes tea\n\nSources: {a}\n\n# Builds" in text, "nothing of it is new"
    assert text.endswith(f"- run make\n\nSources: {c}\n")


def test_a_block_stays_kept_until_a_merge_that_has_seen_it_removes_it() -> None:
    once, _ = merged(f"{ADA}\n{BUILDS}", ADA)
    assert merged(once, once) == (once, [])
    gone, notes = merged(once, ADA)
    assert "Superseded" not in gone and notes == ["no longer kept as superseded: Builds"]


def test_what_was_condensed_or_moved_leaves_nothing_behind() -> None:
    condensed = block("Customers", "Ada ships to Oslo, pays by card and likes tea")
    text, notes = merged(ADA, condensed)
    assert "Superseded" not in text
    assert notes == ["in other blocks now (0 of 3 statements are not there any more): Ada"]
    shorter = block("Ada", "ships to Oslo", "pays by card")
    assert merged(ADA, shorter) == (shorter, [])
    reworded = block("Ada", "Ships to **Oslo** [Task 2]", "Always pays by card", "drinks coffee")
    assert merged(ADA, reworded) == (reworded, [])


def test_updates_in_place_leave_no_old_versions_behind() -> None:
    text = block("Ada", "ships to city 0", "pays by card 0")
    for number in range(1, 40):
        new = block("Ada", f"moved to place {number}", f"prefers means {number}")
        text, notes = merged(text, new)
        assert text == new
        assert notes == ["rewritten (2 of 2 statements are not there any more): Ada"]


@pytest.mark.parametrize("source", ["rollout_summaries/c_s.md", "rollout_summaries/b_s.md"])
def test_a_new_statement_of_another_source_replaces_nothing(source: str) -> None:
    new = block("Ada", f"collects stamps ({source})", sources=SOURCE_A)
    text, notes = merged(block("Ada", "ships to Oslo"), new)
    assert "ships to Oslo" in text and notes == ["kept as superseded: Ada"]


def test_blocks_that_are_renamed_and_rewritten_all_the_time_are_bounded() -> None:
    text = block("T0", "word0 " * 500)
    for number in range(1, 120):
        superseded = text.partition("# Superseded")[2]
        new = block(f"T{number}", f"word{number} " * 500)
        text, notes = merged(text, f"{new}\n# Superseded{superseded}" if superseded else new)
        assert f"kept as superseded: T{number - 1}" in notes and f"## T{number - 1}\n" in text
        assert len(text) < MAX_SUPERSEDED_BYTES + 5000


def test_the_same_block_is_kept_once() -> None:
    once, _ = merged(f"{ADA}\n{BUILDS}", ADA)
    back = once.replace("# Superseded", f"{BUILDS}\n# Superseded")
    other = Selection(selected=["c", "b", "a"], added=["b"])
    again, _ = merged(back, once, other)
    assert again.count("## Builds") == 1 and "merge of runs run-b" in again


def test_every_block_that_is_gone_has_a_remark() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        names = [f"fact {number}" for number in range(30)]
        old = [
            block(f"T{n}", *rng.sample(names, 3), sources=f"Runs: run-{'abcd'[n % 4]}")
            for n in range(6)
        ]
        kept = rng.sample(old, 3)
        text, notes = merged("\n".join(old), "\n".join(kept))
        for number, each in enumerate(old):
            remarks = [note for note in notes if note.endswith(f": T{number}")]
            assert len(remarks) == (each not in kept), (seed, notes)
            lost = sum(
                f"- {name}\n" in each and f"- {name}\n" not in "".join(kept) for name in names
            )
            if lost >= 2:
                assert f"## T{number}\n" in text, (seed, notes)


def test_what_nobody_supports_any_more_goes_with_a_remark() -> None:
    selection = Selection(selected=["c"], removed=["a"])
    text, notes = merged(ADA, block("C", "x", sources="Runs: run-c"), selection)
    assert "Superseded" not in text
    assert notes == ["forgotten, nothing that counts supports it: Ada"]


def test_statements() -> None:
    text = "# No\n- one\n  and more\n* two\n\npara\ngraph\n---\n| a | b |\n|---|---|\n| c | d |\n"
    assert statements(text.split("\n")) == [
        "one and more",
        "two",
        "para graph",
        "a | b |",
        "c | d |",
    ]
    said = Said(
        ["- the staging database runs on port 5433, see rollout_summaries/a_s.md"], is_rollout_file
    )
    assert said.says("Staging database runs on port 5433 [Task 1]")
    assert said.says("database: port 5433 (rollout_summaries/b_s.md)")
    assert not said.says("the production database runs on port 5432")
    assert not said.says("the staging database was lost")


def test_long_handbooks_of_equal_words_end() -> None:
    many = [f"the same words in line {number} and no others" for number in range(5000)]
    text, notes = merged(block("T", *many), block("U", *reversed(many)))
    assert "Superseded" not in text and len(notes) == 1
    other = [f"the same words in row x{number} and no others" for number in range(5000)]
    _, notes = merged(block("T", *many), block("U", *other))
    assert "no room for a superseded block: T" in notes
