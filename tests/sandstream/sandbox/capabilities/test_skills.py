"""Skills: their files, their heads, their place in the workspace and in the prompt."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.box_session import BoxSession, in_session

from sandstream.sandbox.capabilities import (
    Capability,
    LocalDirLazySkillSource,
    Skill,
    Skills,
)
from sandstream.sandbox.capabilities.front_matter import parse_front_matter
from sandstream.sandbox.entries import Dir, File, GitRepo, LocalDir
from sandstream.sandbox.errors import SkillsConfigError
from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.workspace_paths import SandboxWorkspaceScope


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# no head", {}),
        ("---\nname: x", {}),
        ("---\nname: x\ndescription: a: b\n---\nbody", {"name": "x", "description": "a: b"}),
        ("---\nname: 'x'\nd: \"y\"\ne: '\n---", {"name": "x", "d": "y", "e": "'"}),
        ("---\nd: one\n  two\n  # not this\n  three\n---", {"d": "one two three"}),
        ("---\nd: >\n  one\n  two\n\n  three\n---", {"d": "one two\nthree"}),
        ("---\nd: >-  # why\n  one\n    more\n  two\n---", {"d": "one\n  more\ntwo"}),
        ("---\nd: |\n  one\n    two\n\nname: x\n---", {"d": "one\n  two", "name": "x"}),
        ("---\nd: |1\n  one\n---", {"d": "one"}),
        ("---\nd: |\n  ---\n  x\n---", {"d": "---\nx"}),
        ("---\nmeta:\n  name: inner\nname: outer\n---", {"meta": "", "name": "outer"}),
        ("---\n# c\nplain\n\nname: x\n---", {"name": "x"}),
    ],
)
def test_front_matter(text: str, expected: dict[str, str]) -> None:
    assert parse_front_matter(text) == expected


def text_file(text: str = "x") -> File:
    return File(content=text.encode())


def skill(name: str = "b", **more: Any) -> Skill:
    return Skill(name=name, description=f"About {name}", content="Do it.", **more)


def listed(capability: Capability, manifest: Manifest | None = None) -> list[str]:
    text = asyncio.run(capability.instructions(manifest or Manifest())) or ""
    return [line for line in text.split("\n") if "(file: " in line]


def refusal(make: Any) -> tuple[str, dict[str, object]]:
    with pytest.raises(SkillsConfigError) as caught:
        make()
    return str(caught.value), dict(caught.value.context)


@pytest.mark.parametrize(
    ("name", "problem", "reason"),
    [
        ("", "must be non-empty", "empty"),
        (".", "must be non-empty", "empty"),
        ("/abs", "must be a relative path", "absolute"),
        ("C:\\x", "must be a relative path", "absolute"),
        ("a/../b", "must not escape the skills root", "escape_root"),
    ],
)
def test_names_and_paths_stay_inside(name: str, problem: str, reason: str) -> None:
    message, context = refusal(lambda: skill(name))
    assert (message, context["reason"]) == (f"name {problem}", reason)
    message, context = refusal(lambda: Skills(skills=[skill()], skills_path=name))
    assert (message, context["reason"]) == (f"skills_path {problem}", reason)
    message, _ = refusal(lambda: skill(scripts={name: text_file()}))
    assert message == f"scripts {problem}"


def test_one_source_of_skills() -> None:
    message, _ = refusal(Skills)
    assert message == "skills capability requires `skills`, `from_`, or `lazy_from`"
    message, _ = refusal(lambda: Skills(skills=[skill()], from_=Dir()))
    assert message == "skills capability accepts only one of `skills`, `from_`, or `lazy_from`"
    message, _ = refusal(lambda: Skills(from_=text_file()))
    assert message == "`from_` must be a directory-like artifact"
    message, _ = refusal(lambda: Skills(skills=[skill("b"), skill("./b")]))
    assert message == "duplicate skill name: ./b"
    message, _ = refusal(lambda: skill(assets={"x": text_file(), "./x": text_file()}))
    assert message == "duplicate entry path in skill assets"
    message, _ = refusal(lambda: Skill(name="a", description="", content=Dir()))
    assert message == "skill content must be file-like"


def test_skills_are_put_into_the_workspace() -> None:
    given = skill(scripts={"run.sh": text_file()}, assets={"a/b": text_file()})
    manifest = Skills(skills=[given]).process_manifest(Manifest())
    [(path, entry)] = manifest.entries.items()
    assert path == Path(".agents/b")
    assert isinstance(entry, Dir)
    assert set(entry.children) == {"SKILL.md", "scripts", "assets"}
    assert entry.children["SKILL.md"] == text_file("Do it.")
    again = Skills(skills=[given]).process_manifest(manifest)
    assert len(again.entries) == 1
    message, _ = refusal(lambda: Skills(skills=[skill()]).process_manifest(manifest))
    assert message == "skill path already exists in manifest"


def test_from_a_directory() -> None:
    source = Dir(children={"q": Dir(children={"SKILL.md": text_file("---\nname: Q\n---")})})
    capability = Skills(from_=source, skills_path="sk")
    assert capability.process_manifest(Manifest()).entries == {Path("sk"): source}
    occupied = Manifest(entries={"sk": Dir()})
    assert capability.process_manifest(occupied).entries == {"sk": Dir()}
    message, _ = refusal(lambda: capability.process_manifest(Manifest(entries={"sk": text_file()})))
    assert message == "skills root path already exists in manifest"
    assert capability.has_static_instructions()
    assert listed(capability) == ["- Q: No description provided. (file: sk/q)"]
    bare = Skills(from_=Dir(children={"z": Dir(description="Zed"), "f": text_file()}))
    assert listed(bare) == ["- z: Zed (file: .agents/z)"]


def test_the_prompt_lists_skills_by_name() -> None:
    capability = Skills(skills=[skill("b"), skill("a")])
    assert capability.has_static_instructions()
    assert listed(capability) == [
        "- a: About a (file: .agents/a)",
        "- b: About b (file: .agents/b)",
    ]
    text = capability.static_instructions(Manifest())
    assert text is not None
    headings = [line for line in text.split("\n") if line.startswith("#")]
    assert headings == ["## Skills", "### Available skills", "### How to use skills"]
    capability.bind_workspace_scope(SandboxWorkspaceScope.from_cwd("work"))
    assert listed(capability)[0] == "- a: About a (file: /workspace/.agents/a)"
    text = capability.static_instructions(Manifest()) or ""
    assert "### Run-scoped skill paths" in text


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with skills below the working directory."""
    monkeypatch.chdir(tmp_path)
    skills = tmp_path / "host"
    for name, text in (("alpha", "---\nname: Alpha\ndescription: First\n---"), ("beta", "no head")):
        (skills / name).mkdir(parents=True)
        (skills / name / "SKILL.md").write_text(text)
    (skills / "alpha" / "scripts").mkdir()
    (skills / "alpha" / "scripts" / "run.sh").write_text("true\n")
    (skills / "empty").mkdir()
    (skills / "link").symlink_to("alpha")
    return skills


def lazy(source: str = "host", **more: Any) -> Skills:
    return Skills(lazy_from=LocalDirLazySkillSource(source=LocalDir(src=Path(source))), **more)


def test_a_lazy_source_is_indexed(host: Path) -> None:
    assert listed(lazy()) == [
        "- Alpha: First (file: .agents/alpha)",
        "- beta: No description provided. (file: .agents/beta)",
    ]
    text = lazy().static_instructions(Manifest()) or ""
    assert "### Lazy loading" in text
    assert "`load_skill`" in text
    assert lazy("missing").static_instructions(Manifest()) is None
    assert lazy("/etc").static_instructions(Manifest()) is None
    eager = Skills(from_=LocalDir(src=Path("host")))
    assert eager.has_static_instructions()
    assert len(listed(eager)) == 2


def test_the_place_of_lazy_skills_must_be_free(host: Path) -> None:
    manifest = Manifest(entries={"a": Dir(), "a/b/c": text_file(), "z": text_file()})
    message, context = refusal(lambda: lazy(skills_path="a/b").process_manifest(manifest))
    assert message == "skills lazy_from path overlaps existing manifest entries"
    assert context["overlaps"] == ["a", "a/b/c"]
    assert len(lazy(skills_path="y").process_manifest(manifest).entries) == 3


def test_loading_a_skill(host: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    async def story(session: BoxSession) -> None:
        capability = lazy()
        capability.bind(session)
        [tool] = capability.tools()
        assert tool.name == "load_skill"
        assert not hasattr(type(tool), "sandbox_tool")

        async def load(text: str) -> Any:
            return await tool.on_invoke_tool(None, text)

        loaded = {"status": "loaded", "skill_name": "Alpha", "path": ".agents/alpha"}
        assert await load('{"skill_name": "alpha"}') == loaded
        folder = session.root / ".agents" / "alpha"
        assert (folder / "SKILL.md").read_text().startswith("---\nname: Alpha")
        assert (folder / "scripts" / "run.sh").read_text() == "true\n"
        assert not (session.root / ".agents" / "beta").exists()
        again = await load('{"skill_name": "Alpha"}')
        assert again == {**loaded, "status": "already_loaded"}
        assert await load('{"skill_name": "gamma"}') == "lazy skill not found"
        assert "skill_name" in await load("{}")
        (host / "second").mkdir()
        (host / "second" / "SKILL.md").write_text("---\nname: beta\n---")
        assert await load('{"skill_name": "beta"}') == "lazy skill name is ambiguous"
        capability.bind_workspace_scope(SandboxWorkspaceScope.from_cwd("work"))
        scoped = await load('{"skill_name": "alpha"}')
        assert scoped["path"] == f"{session.root}/.agents/alpha"

    in_session(tmp_path_factory.mktemp("box"), story)


def test_skills_of_a_repository_are_known_inside_only(tmp_path: Path) -> None:
    async def story(session: BoxSession) -> None:
        capability = Skills(from_=GitRepo(repo="o/r", ref="main"))
        assert not capability.has_static_instructions()
        capability.bind(session)
        (session.root / ".agents" / "one").mkdir(parents=True)
        (session.root / ".agents" / "none").mkdir()
        (session.root / ".agents" / "one" / "SKILL.md").write_text("---\ndescription: D\n---")
        text = await capability.instructions(session.state.manifest) or ""
        lines = [line for line in text.split("\n") if "(file: " in line]
        assert lines == ["- one: D (file: .agents/one)"]

    in_session(tmp_path, story)
