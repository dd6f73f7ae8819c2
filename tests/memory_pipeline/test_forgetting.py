"""Memories without some rollouts, and memories within their size."""

from __future__ import annotations

import json

import msgspec
import pytest
from sandstream_bus.wire.memories import Rollout
from sandstream_memory.layout import (
    MEMORY_FILE,
    RAW_FILE,
    SELECTION_FILE,
    SUMMARY_FILE,
    Files,
    raw_path,
    rollout_path,
    summary_path,
)
from sandstream_memory.removals import without_rollouts
from sandstream_memory.selection import Selection, raw_memories_file, selection_file


def rollout(name: str, day: int, **more: object) -> Rollout:
    return Rollout(
        id=name,
        name=name,
        runs=[f"run-{name}"],
        updated_at=f"2026-01-{day:02}T00:00:00Z",
        slug="s",
        summary_file=f"rollout_summaries/{name}_s.md",
        extracted=1,
        **more,  # type: ignore[arg-type]
    )


A, B, AB = rollout("a", 2), rollout("b", 3), rollout("a_b", 4)
ROLLOUTS = {each.id: each for each in (A, B, AB)}
HANDBOOK = """# Only a

- x rollout_summaries/a_s.md

# Both

## Task 1
- rollout_summaries/a_s.md
## Task 2
- rollout_summaries/b_s.md
## Preferences
- tabs (`rollout_summaries/a_s.md`, `rollout_summaries/b_s.md`)
- from memories/rollout_summaries/a_older.md.
  because of it
- plain

# Other

- rollout_summaries/a_b_s.md
- a_s.md is a sentence's word
"""


def files() -> Files:
    made: Files = {
        MEMORY_FILE: HANDBOOK.encode(),
        SUMMARY_FILE: b"- one (a_s.md)\n- two (b_s.md)\n",
    }
    for each in ROLLOUTS.values():
        header = f"session_id: x\nrollout_path: {rollout_path(each.name)}\n\n".encode()
        made[raw_path(each.name)] = f"raw of {each.name}".encode()
        made[summary_path(each.name, "s")] = header + b"summary"
        made[rollout_path(each.name)] = json.dumps({"run": each.runs[0]}).encode() + b"\n"
    made[summary_path("a", "older")] = b"session_id: x\nrollout_path: sessions/a.jsonl\n\nold"
    selection = Selection(selected=["a_b", "b", "a"])
    made[SELECTION_FILE] = selection_file(selection, ROLLOUTS, "now")
    made[RAW_FILE] = raw_memories_file(made, selection, ROLLOUTS)
    return made


def test_a_rollout_goes_with_all_that_only_it_supports() -> None:
    left = without_rollouts(files(), [A])
    gone = {raw_path("a"), summary_path("a", "s"), summary_path("a", "older"), rollout_path("a")}
    assert set(files()) - set(left) == gone
    assert left[MEMORY_FILE].decode() == (
        "# Both\n\n## Task 2\n- rollout_summaries/b_s.md\n## Preferences\n"
        "- tabs (`rollout_summaries/b_s.md`)\n- plain\n\n"
        "# Other\n\n- rollout_summaries/a_b_s.md\n"
    )
    assert left[SUMMARY_FILE] == b"- two (b_s.md)\n"
    selected = json.loads(left[SELECTION_FILE])["selected"]
    assert [each["rollout_id"] for each in selected] == ["a_b", "b"]
    assert b"raw of a_b" in left[RAW_FILE] and b"raw of a\n" not in left[RAW_FILE]
    assert without_rollouts(left, [A]) == left


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("Sources: a, b", "Sources: b"),
        ("Sources: b, a.", "Sources: b."),
        ("Runs: `run-a`, `run-b`", "Runs: `run-b`"),
        (
            "Sources: rollout_summaries/a_s.md (runs run-a); rollout_summaries/b_s.md (runs run-b)",
            "Sources: rollout_summaries/b_s.md (runs run-b)",
        ),
        ("- x rollout_summaries/b_s.md, a_s.md (its summary)", "- x rollout_summaries/b_s.md"),
        ("- x a_s.md (as b_s.md says)", "- x (as b_s.md says)"),
        ("- of a_b: rollout_summaries/a_b_older.md", "- of a_b: rollout_summaries/a_b_older.md"),
        ("Runs: run-a_b", "Runs: run-a_b"),
    ],
)
def test_what_others_support_too_names_only_them(line: str, left: str) -> None:
    made = {**files(), MEMORY_FILE: f"# Block\n\n- shared fact\n\n{line}\n".encode()}
    found = without_rollouts(made, [A], [B, AB])[MEMORY_FILE].decode()
    assert found == f"# Block\n\n- shared fact\n\n{left}\n"
    only_state = {MEMORY_FILE: made[MEMORY_FILE]}
    assert without_rollouts(only_state, [A], [B, AB])[MEMORY_FILE].decode() == found


@pytest.mark.parametrize(
    "line", ["Sources: a", "Runs: run-a, run-gone", "- rollout_summaries/a_x.md"]
)
def test_what_nobody_else_supports_goes(line: str) -> None:
    made = {**files(), MEMORY_FILE: f"# Block\n\n- fact\n\n{line}\n\n# Else\n".encode()}
    assert without_rollouts(made, [A], [A, B, AB])[MEMORY_FILE] == b"# Else\n"


def test_the_rest_of_a_rollout_does_not_support_what_all_of_it_said() -> None:
    made = {MEMORY_FILE: b"# Block\n\n- fact\n\nRuns: run-a, run-a2\n"}
    rest = msgspec.structs.replace(A, runs=["run-a2"])
    assert without_rollouts(made, [A], [rest, B])[MEMORY_FILE] == b""


def test_removed_facts_go_from_skills_and_notes() -> None:
    made: Files = {
        MEMORY_FILE: b"# T\n- Ships to Oslo. (a_s.md)\n- none a_s.md\n- pays by card (b_s.md)\n",
        "memories/skills/x/SKILL.md": b"# Ships to Oslo\n* ships to Oslo\n- none\n- pays by card\n",
        "memories/skills/only/SKILL.md": b"# Steps\n- go\nSources: a\n",
        "memories/n.md": b"1. ships to **Oslo**\n2. mine\n",
        "memories/n.bin": b"\xff",
    }
    left = without_rollouts({**files(), **made}, [A], [B, AB])
    assert left["memories/skills/x/SKILL.md"] == b"# Ships to Oslo\n- none\n- pays by card\n"
    assert "memories/skills/only/SKILL.md" not in left
    assert left["memories/n.md"] == b"2. mine\n" and left["memories/n.bin"] == b"\xff"


def test_of_a_digest_that_may_tell_of_it_only_what_others_support_is_left() -> None:
    handbook = b"# Ada\n- ships to Oslo (a_s.md)\n- pays by card (b_s.md)\n"
    digest = (
        "## User profile\nAda lives in Oslo.\n## User preferences\n- pays by card\n"
        "- ships to Oslo\n### Oslo\n- shipping: addresses\n- paying: cards (b_s.md)\n"
    )
    made = {**files(), MEMORY_FILE: handbook, SUMMARY_FILE: digest.encode()}
    left = without_rollouts(made, [A], [B, AB])
    assert left[SUMMARY_FILE].decode() == (
        "## User profile\n## User preferences\n- pays by card\n- paying: cards (b_s.md)\n"
    )
    assert without_rollouts(left, [A], [B, AB]) == left
    vague = {**made, SUMMARY_FILE: b"## User profile\n\nAda lives in Oslo.\n"}
    assert without_rollouts(vague, [A], [B, AB])[SUMMARY_FILE] == b""
    unmerged = {MEMORY_FILE: b"# T\n- x b_s.md\n", SUMMARY_FILE: vague[SUMMARY_FILE]}
    assert without_rollouts(unmerged, [A], [B, AB]) == unmerged
    merged = msgspec.structs.replace(A, is_merged=True)
    assert without_rollouts(unmerged, [merged], [B, AB])[SUMMARY_FILE] == b""


def test_all_or_nothing_can_go() -> None:
    assert without_rollouts(files(), []) == files()
    left = without_rollouts(files(), list(ROLLOUTS.values()))
    assert set(left) == {MEMORY_FILE, SUMMARY_FILE, SELECTION_FILE, RAW_FILE}
    assert left[MEMORY_FILE].strip() == b"" and left[SUMMARY_FILE].strip() == b""


def test_of_a_recording_only_the_lines_of_the_runs_go() -> None:
    made = files()
    made[rollout_path("a")] += b'{"run":"another"}\n'
    assert without_rollouts(made, [A])[rollout_path("a")] == b'{"run":"another"}\n'


def test_files_that_cannot_be_read_stay() -> None:
    made = {MEMORY_FILE: b"\xff a_s.md", SELECTION_FILE: b"{broken", RAW_FILE: b"raw of a"}
    left = without_rollouts(made, [A])
    assert left[MEMORY_FILE] == b"\xff a_s.md" and b"raw of a" not in left[RAW_FILE]
