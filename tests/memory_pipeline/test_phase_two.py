"""Phase 2: selection, the workspace, and what is taken over from it."""

from __future__ import annotations

import json

import pytest
from sandstream_actors.secrets.patterns import scrub
from sandstream_bus.wire.memories import Rollout
from sandstream_memory.digest import memory_section
from sandstream_memory.layout import (
    MARKER_FILE,
    MEMORY_FILE,
    RAW_FILE,
    SELECTION_FILE,
    SUMMARY_FILE,
    Files,
    raw_path,
    rollout_path,
    summary_path,
)
from sandstream_memory.phase_two import (
    Accepted,
    MergeRefused,
    accept,
    request_text,
    workspace_files,
)
from sandstream_memory.selection import Selection, select, selection_file
from sandstream_memory.transcripts import estimate_tokens


def rollout(name: str, day: int = 1, **more: object) -> Rollout:
    given: dict[str, object] = {
        "runs": [f"run-of-{name}"],
        "updated_at": f"2026-01-{day:02}T00:00:00Z",
        "slug": "s",
        "summary_file": f"rollout_summaries/{name}_s.md",
        "terminal_state": "completed",
        "extracted": 1,
    }
    return Rollout(id=name, name=name, **(given | more))  # type: ignore[arg-type]


ROLLOUTS = {each.id: each for each in (rollout("a", 1), rollout("b", 2), rollout("c", 3))}
SELECTION = Selection(selected=["c", "b", "a"], added=["c"], retained=["b", "a"])
OLD = """# Builds

- use make [rollout_summaries/a_s.md]

# Style

- tabs, `rollout_summaries/b_s.md`

# By hand

- call me Al
"""
BEFORE: Files = {
    MEMORY_FILE: OLD.encode(),
    SUMMARY_FILE: b"digest\n",
    raw_path("a"): b"raw a",
    summary_path("a", "s"): b"summary a",
    "memories/skills/x/SKILL.md": b"do x",
}


def accepted(
    after: Files, before: Files = BEFORE, selection: Selection = SELECTION, max_bytes: int = 1 << 24
) -> Accepted:
    return accept(
        before, after, selection=selection, rollouts=ROLLOUTS, scrub=scrub, max_bytes=max_bytes
    )


def handbook(text: str, **more: object) -> str:
    files = accepted({**BEFORE, MEMORY_FILE: text.encode()}, **more).files  # type: ignore[arg-type]
    return files[MEMORY_FILE].decode()


def test_the_newest_are_selected_and_compared_with_the_last_time() -> None:
    rollouts = {
        each.id: each
        for each in (
            rollout("old", 1, is_merged=True),
            rollout("kept", 5, is_merged=True),
            rollout("grown", 6),
            rollout("new", 7),
            rollout("same-day", 7),
            rollout("nothing", 9, slug="", summary_file=""),
            rollout("undated", updated_at="unknown"),
        )
    }
    found = select(rollouts, ["kept", "grown", "old", "deleted"], 4)
    assert found.selected == ["same-day", "new", "grown", "kept"]
    assert found.added == ["same-day", "new", "grown"]
    assert found.retained == ["kept"]
    assert found.removed == ["old", "deleted"]
    assert select(rollouts, [], 100).selected[-1] == "undated"
    text = request_text(found, rollouts)
    assert "- rollout_summaries/new_s.md (2026-01-07T00:00:00Z, completed)" in text
    assert "'deleted' (its files are gone)" in text
    assert json.loads(selection_file(found, rollouts, "now"))["selected"][0] == {
        "rollout_id": "same-day",
        "updated_at": "2026-01-07T00:00:00Z",
        "rollout_path": "sessions/same-day.jsonl",
        "rollout_summary_file": "rollout_summaries/same-day_s.md",
        "terminal_state": "completed",
    }


def test_the_workspace_has_all_but_the_recordings() -> None:
    files = {**BEFORE, rollout_path("a"): b"{}", MARKER_FILE: b"{}", raw_path("c"): b"raw \xff c"}
    held = workspace_files(files, SELECTION, ROLLOUTS, "now")
    assert set(held) == {*BEFORE, raw_path("c"), RAW_FILE, SELECTION_FILE}
    text = held[RAW_FILE].decode()
    assert text.index("raw_memories/c.md") < text.index("raw_memories/a.md") < text.index("raw a")
    empty = workspace_files({}, Selection([]), {}, "now")
    assert empty[MEMORY_FILE] == empty[SUMMARY_FILE] == b""


def test_only_what_the_agent_may_change_is_taken() -> None:
    after = {
        **BEFORE,
        raw_path("a"): b"forged",
        "memories/rollout_summaries/z_s.md": b"forged",
        "etc/passwd": b"x",
        "memories/skills/Bad Name/SKILL.md": b"x",
        "memories/skills/ok/SKILL.md": b"password: hunter2hunter2",
        "memories/bin": b"\xff",
        "memories/big.md": b"x" * 300_000,
    }
    del after["memories/skills/x/SKILL.md"]
    found = accepted(after)
    assert found.files[raw_path("a")] == b"raw a"
    assert found.files["memories/skills/ok/SKILL.md"] == b"password: [redacted]"
    assert set(found.files) == set(BEFORE) - {"memories/skills/x/SKILL.md"} | {
        "memories/skills/ok/SKILL.md"
    }
    assert len(found.notes) == 7


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({MEMORY_FILE: b" \n"}, "MEMORY.md is empty"),
        ({SUMMARY_FILE: b""}, "memory_summary.md is empty"),
        ({MEMORY_FILE: b"\xff"}, "MEMORY.md is not UTF-8"),
        ({MEMORY_FILE: b"x" * 600_000}, "must be condensed"),
    ],
)
def test_what_cannot_be_taken_is_refused(changed: Files, reason: str) -> None:
    with pytest.raises(MergeRefused, match=reason):
        accepted({**BEFORE, **changed})


def test_sizes() -> None:
    found = accepted({**BEFORE, SUMMARY_FILE: b"begin " + b"x" * 100_000 + b" end"})
    digest = found.files[SUMMARY_FILE]
    assert len(digest) <= 60_000 and digest.startswith(b"begin") and digest.endswith(b" end")
    assert any("was cut" in note for note in found.notes)
    notes = {f"memories/n{n}.md": b"x" * 200_000 for n in range(6)}
    with pytest.raises(MergeRefused, match="more than the 1000000 allowed"):
        accepted({**BEFORE, **notes}, max_bytes=1_000_000)
    assert accepted({}, selection=Selection([], removed=["a"])).files[MEMORY_FILE] is not None


def test_what_a_merge_drops_is_superseded() -> None:
    new = "# Style\n\n- spaces (was tabs) rollout_summaries/b_s.md rollout_summaries/c_s.md\n"
    text = handbook(new)
    assert text.startswith(new.strip())
    assert "# Superseded" in text
    assert "## Builds\n\nLeft out by the merge of runs run-of-c.\n\n- use make" in text
    assert "## By hand" in text and "call me Al" in text
    assert "- tabs" not in text  # its source is named by the newer block


def test_an_entry_stays_superseded_until_it_is_said_elsewhere_or_unsupported() -> None:
    once = {**BEFORE, MEMORY_FILE: handbook("# New\n\n- x rollout_summaries/c_s.md\n").encode()}
    again = accepted(once, once)
    assert again.files == once
    dropped = {**once, MEMORY_FILE: b"# New\n\n- y rollout_summaries/c_s.md\n"}
    text = accepted(dropped, once).files[MEMORY_FILE].decode()
    assert text.count("## Builds") == 1 and "- use make" in text
    folded = {**once, MEMORY_FILE: b"# New\n\n- make, a_s.md, b_s.md, c_s.md\n- call me Al\n"}
    assert b"Superseded" not in accepted(folded, once).files[MEMORY_FILE]
    without_a = Selection(selected=["c", "b"], removed=["a"])
    assert b"use make" not in accepted(once, once, without_a).files[MEMORY_FILE]


def test_what_is_superseded_is_bounded() -> None:
    old = "".join(f"# T{n}\n\n- {'x' * 9000}{n} rollout_summaries/a_s.md\n\n" for n in range(20))
    before = {**BEFORE, MEMORY_FILE: old.encode()}
    found = accepted({**BEFORE, MEMORY_FILE: b"# N\n\n- x c_s.md b_s.md\n"}, before)
    assert len(found.files[MEMORY_FILE]) < 70_000
    assert sum("no room" in note for note in found.notes) == 13


def test_a_block_without_a_source_is_given_one() -> None:
    text = handbook(OLD + "\n# New\n\n- learned\n")
    assert text.endswith(
        "# New\n\n- learned\n\nSources: rollout_summaries/c_s.md (runs run-of-c)\n"
    )
    assert "call me Al\n\n# New" in text  # what was there before is not from this merge
    assert handbook(OLD + "\n# N\n\n- x\n\nRuns: run-of-b\n").endswith("Runs: run-of-b\n")


def test_sources_that_are_added_leave_room_for_the_handbook() -> None:
    many = {
        f"c{n}": rollout(f"c{n}", runs=[f"run-{n}-{m:030}" for m in range(100)]) for n in range(40)
    }
    selection = Selection(list(many), added=list(many))
    for blocks, max_bytes in ((10, 1 << 24), (2000, 1 << 24), (40, 4000)):
        text = "".join(f"# Group {n}\n\n- fact {n}\n\n" for n in range(blocks))
        after = {MEMORY_FILE: text.encode(), SUMMARY_FILE: b"x"}
        found = accept(
            {}, after, selection=selection, rollouts=many, scrub=scrub, max_bytes=max_bytes
        )
        lines = found.files[MEMORY_FILE].decode().split("\n")
        named = [line for line in lines if line.startswith("Sources: ")]
        assert all(len(line) <= 2100 for line in named) and len(found.notes) == blocks
        assert len(named) == (0 if max_bytes == 4000 else blocks)
        assert all(line.endswith(" more") for line in named)
        assert all("97 earlier" in line for line in named) or blocks > 1000


def test_secrets_do_not_reach_the_handbook() -> None:
    key = "sk-" + "a1" * 20
    after = {**BEFORE, MEMORY_FILE: f"{OLD}\n{key}".encode(), SUMMARY_FILE: key.encode()}
    found = accepted(after)
    assert not any(key.encode() in data for data in found.files.values())


def test_the_section_for_readers() -> None:
    live = memory_section("I know {updating} it.\n", memories_dir="/w/mem/", live_update=True)
    still = memory_section("I know it.", memories_dir="mem", live_update=False)
    assert live is not None and still is not None
    assert "/w/mem/MEMORY.md" in live and "I know {updating} it." in live
    assert "correct it in the same turn" in live and "read-only for you" in still
    assert "{" not in still and "4 to 6" in still
    assert memory_section(" \n", memories_dir="m", live_update=True) is None
    long = memory_section("x" * 500_000, memories_dir="m", live_update=True)
    assert long is not None and estimate_tokens(long) < 17_000
