"""The system prompt of a sandbox agent, section by section."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sandstream.sandbox.entries import Dir, File
from sandstream.sandbox.instructions import get_default_sandbox_instructions
from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.prompt_assembly import assemble_prompt


class Mounted:
    """A manifest with mounts, which need credentials and images otherwise."""

    root = "/workspace"
    remote_mount_command_allowlist = ("ls", "cp")

    def __init__(self, *mounts: tuple[str, bool]) -> None:
        self._mounts = mounts

    def mount_targets(self) -> list[tuple[Any, Path]]:
        return [(_Mount(read_only), Path(path)) for path, read_only in self._mounts]

    def describe(self, depth: int | None = 1) -> str:
        assert depth == 3
        return f"{self.root}\n"


class _Mount:
    def __init__(self, read_only: bool) -> None:
        self.read_only = read_only


def test_sections_in_order() -> None:
    prompt = assemble_prompt(
        base="Base.",
        agent_instructions="Be kind.",
        capability_texts=["One.", None, "Two."],
        manifest=Mounted(("/workspace/data", True)),
    )
    sections = prompt.split("\n\n# ")
    assert [section.split("\n")[0] for section in sections] == [
        "Base.",
        "Agent instructions",
        "Sandbox capability instructions",
        "Sandbox remote mount policy",
        "Filesystem",
    ]
    assert sections[1] == "Agent instructions\n\nBe kind."
    assert sections[2] == "Sandbox capability instructions\n\nOne.\n\nTwo."
    assert sections[4].endswith("\n\n/workspace")


def test_what_says_nothing_is_left_out() -> None:
    prompt = assemble_prompt(
        base=None, agent_instructions="", capability_texts=[None], manifest=Manifest()
    )
    assert prompt.startswith("# Filesystem\n")
    assert prompt.count("# ") == 1


def test_the_workspace_is_drawn_three_levels_deep() -> None:
    deep = Dir(children={"two": Dir(children={"three": Dir(children={"four": File(content=b"")})})})
    prompt = assemble_prompt(
        base="B",
        agent_instructions=None,
        capability_texts=[],
        manifest=Manifest(entries={"one": deep}),
    )
    assert "three/" in prompt
    assert "four" not in prompt


def test_the_working_directory_is_named() -> None:
    prompt = assemble_prompt(
        base="B", agent_instructions=None, capability_texts=[], manifest=Manifest(), cwd="a/b"
    )
    assert "`/workspace/a/b`" in prompt
    assert "`/workspace`" in prompt


def test_remote_mounts() -> None:
    def policy(*mounts: tuple[str, bool]) -> str:
        return assemble_prompt(
            base=None, agent_instructions=None, capability_texts=[], manifest=Mounted(*mounts)
        )

    both = policy(("/workspace/in", True), ("/workspace/out", False))
    assert "- /workspace/in (mounted in read-only mode)" in both
    assert "- /workspace/out (mounted in read+write mode)" in both
    assert "`ls`, `cp`" in both
    assert "Never write to read-only mounts" in both
    assert "copy it back" in both
    assert "copy it back" not in policy(("/workspace/in", True))
    assert "Never write" not in policy(("/workspace/out", False))


def test_the_built_in_base() -> None:
    base = get_default_sandbox_instructions()
    assert 3500 < len(base) < 6500
    for word in ("AGENTS.md", "`apply_patch`", "final answer", "workspace"):
        assert word in base
