"""Memory as a capability: its settings, what it refuses, what it puts into the prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from sandstream_bus.wire.memory_specs import MemoryUse
from support.box_session import BoxSession, in_session

from sandstream import ModelSettings, RunConfig, UserError
from sandstream._run.plan import RunPlan
from sandstream.models.interface import Model, ModelProvider
from sandstream.sandbox import (
    Manifest,
    MemoryGenerateConfig,
    MemoryLayoutConfig,
    MemoryReadConfig,
    MemoryWriteConfig,
    SandboxAgent,
    SandboxRunConfig,
    SandboxWorkspaceScope,
    User,
)
from sandstream.sandbox.capabilities import (
    ApplyPatch,
    Capabilities,
    Filesystem,
    Memory,
    Shell,
    Vision,
)
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient


class SomeModel(Model):
    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError


class SomeProvider(ModelProvider):
    def get_model(self, model_name: str | None) -> Model:
        return SomeModel()


# --- settings -------------------------------------------------------------------------------------


def test_it_is_not_among_the_defaults_and_reads_and_generates_by_itself() -> None:
    memory = Memory()
    assert all(each.type != "memory" for each in Capabilities.default())
    assert memory.layout == MemoryLayoutConfig("memories", "sessions")
    assert memory.read == MemoryReadConfig(live_update=True)
    assert memory.generate == MemoryGenerateConfig()
    assert memory.scope is None


def test_a_clone_has_the_same_configuration_objects() -> None:
    memory = Memory(generate=MemoryGenerateConfig(phase_one_model=SomeModel()))
    memory.session = object()
    clone = memory.clone()
    assert clone is not memory
    assert clone.session is None
    assert clone.generate is memory.generate
    assert clone.layout is memory.layout
    assert clone.read is memory.read


def test_older_names() -> None:
    assert MemoryWriteConfig is MemoryGenerateConfig
    assert Memory(write=None).generate is None
    memory = Memory(write=MemoryWriteConfig(batch_size=2, extra_prompt="SQL"))
    assert memory.write is memory.generate
    assert memory.generate == MemoryGenerateConfig(batch_size=2, extra_prompt="SQL")
    layout = MemoryLayoutConfig(memory_dir="memory", rollouts_dir="rollouts")
    assert layout == MemoryLayoutConfig("memory", "rollouts")
    assert Memory(write={"batch_size": 3}).generate == MemoryGenerateConfig(batch_size=3)


def test_dicts_will_do() -> None:
    memory = Memory(layout={"memories_dir": "m"}, read={"live_update": False})
    assert memory.layout.memories_dir == "m"
    assert memory.read == MemoryReadConfig(live_update=False)
    config = MemoryGenerateConfig(phase_two_model_settings={"temperature": 0.5})
    assert config.phase_two_model_settings == ModelSettings(temperature=0.5)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"read": None, "generate": None}, "neither reads nor generates"),
        ({"read": None, "write": None}, "neither reads nor generates"),
        ({"write": None, "generate": None}, "give one of them"),
        ({"layout": MemoryLayoutConfig(memories_dir="/abs")}, "relative"),
        ({"layout": MemoryLayoutConfig(sessions_dir="a/../../b")}, "must not leave"),
        ({"layout": MemoryLayoutConfig(memories_dir="")}, "empty"),
        ({"layout": MemoryLayoutConfig(sessions_dir=".")}, "empty"),
        ({"layout": MemoryLayoutConfig("x", "x")}, "two directories"),
        ({"scope": ""}, "has no name"),
        ({"scope": "sandbox:1"}, "those of workspaces"),
        ({"scope": "a\ud800"}, "surrogate"),
        ({"scope": 42}, "valid string"),
        ({"scpoe": "user"}, "scpoe"),
        ({"read": True}, "MemoryReadConfig"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Memory(**settings)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"max_raw_memories_for_consolidation": 0}, "from 1 to 4096, not 0"),
        ({"max_raw_memories_for_consolidation": 4097}, "from 1 to 4096, not 4097"),
        ({"phase_two_max_turns": 0}, "at least 1"),
        ({"phase_two_max_turns": 1.5}, "whole number"),
        ({"batch_size": 0}, "at least 1"),
        ({"batch_size": True}, "whole number"),
        ({"max_bytes": 1}, "at least 65536"),
        ({"quiet_seconds": 0}, "greater than 0"),
        ({"quiet_seconds": float("inf")}, "greater than 0"),
        ({"quiet_seconds": "60"}, "greater than 0"),
        ({"phase_one_model": None}, "phase_one_model"),
        ({"phase_two_model": ""}, "phase_two_model"),
        ({"phase_one_model_settings": {"nope": 1}}, "nope"),
        ({"extra_prompt": 1}, "extra_prompt"),
        ({"wait_for_memory": 5}, "must be True or False, not 5"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises((ValueError, TypeError), match=problem):
        MemoryGenerateConfig(**settings)


@pytest.mark.parametrize("value", [3, None, Path("memories")])
def test_a_directory_is_a_text(value: Any) -> None:
    with pytest.raises(TypeError, match="memories_dir"):
        MemoryLayoutConfig(memories_dir=value)


def test_a_directory_has_one_name() -> None:
    with pytest.raises(TypeError, match="memory_dir is an older name of memories_dir: give one"):
        MemoryLayoutConfig(memories_dir="a", memory_dir="b")
    assert MemoryLayoutConfig(sessions_dir="a", rollouts_dir="a").sessions_dir == "a"


# --- what an agent needs for it -------------------------------------------------------------------


def agent(*capabilities: Any, name: str = "coder") -> SandboxAgent[Any]:
    return SandboxAgent(name=name, capabilities=capabilities)


def config(**more: Any) -> RunConfig:
    return RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()), **more)


def use_of(memory: Memory, run_config: RunConfig | None = None) -> MemoryUse:
    plan = RunPlan(agent(memory, Shell(), Filesystem()), run_config or config(), "r1")
    compiled = plan._compiled.agents["coder"].memory
    assert compiled is not None
    return compiled


@pytest.mark.parametrize(
    ("capabilities", "missing"),
    [
        ((Memory(),), "filesystem, shell"),
        ((Memory(), Shell()), "filesystem"),
        ((Memory(), Shell(), Vision()), "filesystem"),
        ((Memory(read=MemoryReadConfig(live_update=False)), Filesystem()), "shell"),
    ],
)
def test_reading_needs_other_capabilities(capabilities: Any, missing: str) -> None:
    with pytest.raises(UserError, match=f"Memory requires missing capabilities: {missing}"):
        RunPlan(agent(*capabilities), config(), "r1")


@pytest.mark.parametrize(
    "capabilities",
    [
        (Memory(), Shell(), Filesystem()),
        (Memory(), Shell(), ApplyPatch()),
        (Memory(read=MemoryReadConfig(live_update=False)), Shell()),
        (Memory(read=None),),
    ],
)
def test_agents_that_can_remember(capabilities: Any) -> None:
    RunPlan(agent(*capabilities), config(), "r1")


def test_older_capabilities_have_the_tools_of_their_names() -> None:
    for older, tools in ((ApplyPatch(), ["apply_patch"]), (Vision(), ["view_image"])):
        older.bind(object())
        assert [tool.name for tool in older.tools()] == tools


def test_an_agent_has_one_memory() -> None:
    with pytest.raises(UserError, match="has 2 Memory capabilities"):
        RunPlan(agent(Memory(), Memory(scope="x"), Shell(), Filesystem()), config(), "r1")


# --- what a run carries of it ---------------------------------------------------------------------


def test_a_memory_as_data() -> None:
    use = use_of(Memory())
    assert use.generates
    assert use.reads
    assert use.live_update
    assert use.eager
    assert (use.scope, use.memories_dir, use.sessions_dir) == ("", "memories", "sessions")
    assert (use.phase_one.model, use.phase_two.model) == ("gpt-5.4-mini", "gpt-5.5")
    assert use.phase_one.settings == {"reasoning": {"effort": "medium"}}
    assert (use.max_raw_memories, use.phase_two_max_turns, use.quiet_s) == (256, 500, 60.0)
    assert not use.phase_one.hosted


def test_a_configured_memory_as_data() -> None:
    memory = Memory(
        scope="user:42/ü",
        read=MemoryReadConfig(live_update=False),
        layout=MemoryLayoutConfig("./a//m", "s/"),
        generate=MemoryGenerateConfig(
            batch_size=3, quiet_seconds=2, max_bytes=100_000, extra_prompt="mind the gap"
        ),
    )
    use = use_of(memory)
    assert (use.scope, use.memories_dir, use.sessions_dir) == ("user:42/ü", "a/m", "s")
    assert (use.batch_size, use.quiet_s, use.max_bytes) == (3, 2.0, 100_000)
    assert use.extra_prompt == "mind the gap"
    assert not use.live_update
    assert not use.eager


def test_read_only_and_generate_only() -> None:
    assert not use_of(Memory(generate=None)).generates
    generating = use_of(Memory(read=None))
    assert not generating.reads
    assert not generating.live_update


def test_model_objects_are_asked_where_they_are() -> None:
    own = use_of(Memory(generate=MemoryGenerateConfig(phase_two_model=SomeModel())))
    assert (own.phase_one.hosted, own.phase_two.hosted) == (False, True)
    provided = use_of(Memory(), config(model_provider=SomeProvider()))
    assert (provided.phase_one.hosted, provided.phase_two.hosted) == (True, True)
    assert provided.phase_one.model == "gpt-5.4-mini"


# --- several agents -------------------------------------------------------------------------------


def two_agents(first: Memory, second: Memory, *, shared: bool = True) -> RunPlan:
    client = UnixLocalSandboxClient()
    session = client.session_of(
        client.new_state(snapshot=None, manifest=Manifest(), options=None, sandbox_id="s-1"),
        None,
        run="",
    )
    other: SandboxAgent[Any] = SandboxAgent(
        name="two", capabilities=[second, Shell(), Filesystem()]
    )
    one: SandboxAgent[Any] = SandboxAgent(
        name="one", capabilities=[first, Shell(), Filesystem()], handoffs=[other]
    )
    sandbox = SandboxRunConfig(session=session) if shared else SandboxRunConfig(client=client)
    return RunPlan(one, RunConfig(sandbox=sandbox), "r1")


OTHER = MemoryLayoutConfig("other/memories", "other/sessions")
CONFLICTS = [
    (Memory(), Memory(generate=MemoryGenerateConfig(batch_size=2)), "generate differently"),
    (Memory(), Memory(layout=MemoryLayoutConfig("memories", "s2")), "share 'memories'"),
    (Memory(), Memory(layout=MemoryLayoutConfig("sessions", "s2")), "share 'sessions'"),
    (Memory(), Memory(layout=MemoryLayoutConfig("memories/b", "s2")), "share 'memories/b'"),
    (Memory(), Memory(scope="x"), "two scopes"),
]


@pytest.mark.parametrize(("first", "second", "problem"), CONFLICTS)
def test_memories_in_one_workspace_must_not_mix(
    first: Memory, second: Memory, problem: str
) -> None:
    with pytest.raises(UserError, match=f"agents 'one' and 'two' are in one .*{problem}"):
        two_agents(first, second)
    two_agents(first, second, shared=False)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Memory(), Memory()),
        (Memory(), Memory(generate=None)),
        (Memory(), Memory(layout=OTHER, generate=MemoryGenerateConfig(batch_size=2))),
        (Memory(scope="x"), Memory(scope="x")),
        (Memory(scope="x"), Memory(scope="x", layout=OTHER)),
    ],
)
def test_memories_that_go_together(first: Memory, second: Memory) -> None:
    two_agents(first, second)


# --- reading --------------------------------------------------------------------------------------


def bound(session: BoxSession, memory: Memory) -> Memory:
    copy = memory.clone()
    copy.bind(session)
    return copy


def remember(session: BoxSession, text: str, directory: str = "memories") -> None:
    (session.root / directory).mkdir(parents=True, exist_ok=True)
    (session.root / directory / "memory_summary.md").write_text(text)


def test_what_is_remembered_is_in_the_prompt_as_it_is_now(tmp_path: Path) -> None:
    async def story(session: BoxSession) -> None:
        memory = bound(session, Memory())
        manifest = session.state.manifest
        assert await memory.instructions(manifest) is None
        remember(session, "  \n")
        assert await memory.instructions(manifest) is None
        remember(session, "The user prefers minimal patches.")
        first = await memory.instructions(manifest)
        assert first is not None
        assert "The user prefers minimal patches." in first
        assert "memories/MEMORY.md" in first
        assert str(session.root) not in first
        remember(session, "The user prefers tests first.")
        second = await memory.instructions(manifest)
        assert second is not None
        assert "tests first" in second
        assert "minimal patches" not in second

    in_session(tmp_path, story)


def test_a_run_with_a_directory_of_its_own_is_told_an_absolute_path(tmp_path: Path) -> None:
    async def story(session: BoxSession) -> None:
        remember(session, "Something.", "kept/m")
        memory = bound(session, Memory(layout=MemoryLayoutConfig("kept/m", "kept/s")))
        memory.bind_workspace_scope(SandboxWorkspaceScope.from_cwd("src"))
        memory.bind_run_as(User(name="somebody"))
        text = await memory.instructions(session.state.manifest)
        assert text is not None
        assert f"{session.root}/kept/m/MEMORY.md" in text

    in_session(tmp_path, story)


def test_live_updates_are_said_or_forbidden(tmp_path: Path) -> None:
    async def story(session: BoxSession) -> None:
        remember(session, "Something.")
        manifest = session.state.manifest
        live = await bound(session, Memory()).instructions(manifest)
        read_only = Memory(read=MemoryReadConfig(live_update=False))
        fixed = await bound(session, read_only).instructions(manifest)
        assert live != fixed
        assert await bound(session, Memory(read=None)).instructions(manifest) is None

    in_session(tmp_path, story)
