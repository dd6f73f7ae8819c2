"""Names and places of files."""

from __future__ import annotations

import re

import pytest
from sandstream_bus.wire.sandbox_specs import MemoryMount
from sandstream_memory.layout import (
    MARKER_FILE,
    MEMORY_FILE,
    RAW_FILE,
    SELECTION_FILE,
    check_layout,
    is_editable,
    raw_path,
    rollout_name,
    rollout_path,
    summary_path,
    to_canonical,
    to_workspace,
)

VALID = ["a", "run-0af3", "User_1.x", "x" * 128]
ODD = ["user:42", "user/42", "user-42:", "a/b", "A/B", "../x", ".hidden", "", "x" * 129, "x" * 500]
ODD += ["ü", "ö", "a b", "a\n", "a\x00", "\ud800", "日本語"]


def test_any_id_has_a_name_of_its_own() -> None:
    names = [rollout_name(each) for each in VALID + ODD]
    assert names[: len(VALID)] == VALID
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", name) for name in names)
    assert len({name.lower() for name in names}) == len(names)


def test_nobody_can_take_the_name_of_another_id() -> None:
    taken = rollout_name("user:42")
    assert taken.startswith("user-42.id-")
    assert rollout_name(taken) != taken


def test_only_what_the_pipeline_does_not_make_is_editable() -> None:
    for path in (MEMORY_FILE, "memories/skills/a/SKILL.md", "memories/notes/x.md"):
        assert is_editable(path)
    made = [RAW_FILE, SELECTION_FILE, MARKER_FILE, raw_path("a"), summary_path("a", "b")]
    made += [
        rollout_path("a"),
        "other/x",
        "memories/../x",
        "memories//x",
        "memories/a\nb",
        "memories/",
        "memories/raw_memories",
        "memories/rollout_summaries",
        "memories/skills",
        "memories/MEMORY.md/x",
        "memories/memory_summary.md/x/y",
        "memories/raw_memories.md/x",
        "memories/.memory.json/x",
    ]
    for path in made:
        assert not is_editable(path), path


def test_layouts_map_both_ways() -> None:
    mount = MemoryMount(scope="s", memories_dir="./data/mem/", sessions_dir="data/mem/log")
    for path in (MEMORY_FILE, rollout_path("a")):
        assert to_canonical(to_workspace(path, mount), mount) == path
    assert to_workspace(MEMORY_FILE, mount) == "data/mem/MEMORY.md"
    assert to_canonical("data/memory/x", mount) is None
    assert to_canonical("data/mem/../x", mount) is None
    with pytest.raises(ValueError, match="not a path of a memory"):
        to_workspace("x.md", mount)


@pytest.mark.parametrize(
    ("memories", "sessions", "text"),
    [
        ("", "s", "memories_dir is empty"),
        (".", "s", "memories_dir is empty"),
        ("m", "/s", "sessions_dir is '/s': it must be relative"),
        ("a/../b", "s", "must not leave"),
        ("m", "./m/", "two directories"),
        ("a\nb", "s", "no directory"),
    ],
)
def test_a_bad_layout_is_named(memories: str, sessions: str, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        check_layout(memories, sessions)
    check_layout("a/memories", "a/sessions")
