"""Whatever is merged or accepted can be laid out in one directory."""

from __future__ import annotations

import random
from pathlib import Path

from sandstream_memory.acceptance import accept
from sandstream_memory.clashes import without_clashes
from sandstream_memory.layout import (
    KNOWN_FILES,
    KNOWN_FOLDERS,
    MEMORY_FILE,
    SUMMARY_FILE,
    Files,
    is_valid_path,
    raw_path,
)
from sandstream_memory.selection import Selection
from sandstream_memory.three_way_merge import merge_files


def lay_out(files: Files, root: Path) -> None:
    for folder in KNOWN_FOLDERS:
        (root / folder).mkdir(parents=True)
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def test_a_file_in_the_place_of_a_folder_gets_another_name() -> None:
    files: Files = {
        "memories/notes": b"mine",
        "memories/notes/a.md": b"a",
        "memories/notes/a.md/b": b"b",
        "memories/skills": b"s",
        "memories/x.md": b"x",
    }
    found, notes = without_clashes(files)
    assert found == {
        "memories/notes.file": b"mine",
        "memories/notes/a.md.file": b"a",
        "memories/notes/a.md/b": b"b",
        "memories/skills.file": b"s",
        "memories/x.md": b"x",
    }
    assert "memories/notes is called memories/notes.file now: it is a folder, too" in notes
    assert without_clashes(found) == (found, [])
    again, _ = without_clashes({**found, "memories/notes": b"mine"})
    assert again == found
    other, _ = without_clashes({**found, "memories/notes": b"other"})
    assert other == {**found, "memories/notes.file-2": b"other"}


def test_names_of_the_pipeline_are_fixed() -> None:
    files = {"memories/MEMORY.md/x": b"x", raw_path("a"): b"a", f"{raw_path('a')}/y": b"y"}
    found, notes = without_clashes(files)
    assert found == {raw_path("a"): b"a"} and len(notes) == 2
    long = f"memories/{'n' * 255}"
    assert list(without_clashes({long: b"1", f"{long}/a": b"2"})[0]) == [f"{long}/a"]


def test_two_sides_that_each_could_be_laid_out_can_be_laid_out_together(tmp_path: Path) -> None:
    names = ["a", "b", "a.file", "skills", "MEMORY.md", "raw_memories", "skills/a"]
    for seed in range(200):
        rng = random.Random(seed)

        def side(rng: random.Random = rng) -> Files:
            depths = [rng.randint(1, 3) for _ in range(5)]
            paths = ["/".join(rng.choices(names, k=depth)) for depth in depths]
            return {f"memories/{it}": rng.choice([b"1\n", b"2\n"]) for it in paths}

        notes: list[str] = []
        merged = merge_files(side(), side(), side(), notes)
        assert all(is_valid_path(path) for path in merged)
        lay_out(merged, tmp_path / str(seed))
        assert without_clashes(merged) == (merged, [])


def test_a_merge_of_a_file_and_a_folder_keeps_both() -> None:
    notes: list[str] = []
    merged = merge_files({}, {"memories/n": b"file"}, {"memories/n/a.md": b"a"}, notes)
    assert merged == {"memories/n.file": b"file", "memories/n/a.md": b"a"} and len(notes) == 1


def test_a_consolidation_cannot_put_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    before = {raw_path("a"): b"x", "memories/raw_memories": b"from before this was refused"}
    after: Files = {
        MEMORY_FILE: b"# A\n",
        SUMMARY_FILE: b"x",
        "memories/skills": b"x",
        "memories/rollout_summaries": b"x",
        "memories/skills/foo/SKILL.md": b"z",
    }
    found = accept(
        before,
        after,
        selection=Selection([]),
        rollouts={},
        scrub=lambda text: text,
        max_bytes=1 << 20,
    )
    lay_out(found.files, tmp_path)
    assert found.files["memories/skills/foo/SKILL.md"] == b"z"
    assert not KNOWN_FOLDERS & found.files.keys() and found.files.keys() & KNOWN_FILES
    assert sum("memories/skills'" in note for note in found.notes) == 1
