"""The base of capabilities, the default set, and compaction."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Literal

import pytest
from pydantic import Field, ValidationError

from sandstream.sandbox.capabilities import (
    Capabilities,
    Capability,
    Compaction,
    CompactionModelInfo,
    DynamicCompactionPolicy,
    Filesystem,
    Shell,
    StaticCompactionPolicy,
)
from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.types import User
from sandstream.sandbox.workspace_paths import SandboxWorkspaceScope


class Session:
    async def run_tool(self, name: str, arguments: str, **scope: Any) -> Any:
        return name


class Notes:
    def __init__(self) -> None:
        self.lines: list[str] = []


class Diary(Capability):
    type: Literal["diary"] = "diary"
    pages: dict[str, list[int]] = Field(default_factory=dict)
    notes: Any = None
    lock: Any = None
    callback: Any = None


def test_default() -> None:
    first, second = Capabilities.default(), Capabilities.default()
    assert [type(each) for each in first] == [Filesystem, Shell, Compaction]
    assert [each.model_dump() for each in first] == [
        {"type": "filesystem"},
        {"type": "shell"},
        {"type": "compaction", "policy": None},
    ]
    assert first[0] is not second[0]


def test_hooks_do_nothing_by_default() -> None:
    diary, manifest = Diary(), Manifest()
    assert diary.tools() == []
    assert diary.process_manifest(manifest) is manifest
    assert asyncio.run(diary.instructions(manifest)) is None
    assert diary.sampling_params({"model": "x"}) == {}
    items = [{"type": "message"}]
    assert diary.process_context(items) is items
    assert diary.required_capability_types() == set()


def test_what_is_bound_is_not_dumped() -> None:
    diary, session = Diary(), Session()
    diary.bind(session)
    diary.bind_run_as(User(name="me"))
    diary.bind_workspace_scope(SandboxWorkspaceScope.from_cwd("sub"))
    assert diary.session is session
    assert diary.run_as == User(name="me")
    assert str(diary.workspace_scope.cwd) == "sub"
    assert set(diary.model_dump()) == {"type", "pages", "notes", "lock", "callback"}


def test_a_clone_shares_nothing_that_changes() -> None:
    session, lock = Session(), threading.Lock()
    diary = Diary(pages={"monday": [1]}, notes=Notes(), lock=lock, callback=print)
    diary.bind(session)
    copy = diary.clone()
    assert isinstance(copy, Diary)
    copy.pages["monday"].append(2)
    copy.notes.lines.append("x")
    copy.bind_run_as(User(name="me"))
    assert diary.pages == {"monday": [1]}
    assert diary.notes.lines == []
    assert diary.run_as is None
    assert copy.session is session
    assert copy.lock is lock
    assert copy.callback is print


def test_what_cannot_be_copied_is_shared() -> None:
    numbers = (number for number in range(3))
    assert Diary(notes=numbers).clone().notes is numbers  # type: ignore[attr-defined]


def test_instructions_that_need_no_sandbox() -> None:
    manifest = Manifest()
    for capability in Capabilities.default():
        assert capability.has_static_instructions()
        text = asyncio.run(capability.instructions(manifest))
        assert text == capability.static_instructions(manifest)
    shell_text = Shell().static_instructions(manifest)
    assert shell_text is not None
    assert "`exec_command`" in shell_text
    assert "`write_stdin`" in shell_text

    class Talkative(Shell):
        async def instructions(self, manifest: Manifest) -> str | None:
            return "own words"

    assert not Talkative().has_static_instructions()


# --- compaction -----------------------------------------------------------------------------------


def _asked(threshold: int) -> dict[str, Any]:
    return {"context_management": [{"type": "compaction", "compact_threshold": threshold}]}


@pytest.mark.parametrize(
    ("model", "threshold"),
    [
        ("gpt-5.4", 942818),
        ("GPT-4.1-mini", 942818),
        ("openai/gpt-5-2", 360000),
        ("gpt-5.3-codex", 360000),
        ("o3", 180000),
        ("codex-mini-latest", 180000),
        ("gpt-4o", 115200),
        ("gpt-5-chat-latest", 115200),
        ("somebody-else/model", 240000),
        (None, 240000),
    ],
)
def test_threshold_by_model(model: str | None, threshold: int) -> None:
    assert Compaction().sampling_params({"model": model}) == _asked(threshold)


def test_policies() -> None:
    assert Compaction(policy=StaticCompactionPolicy(threshold=7)).sampling_params({}) == _asked(7)
    info = CompactionModelInfo(context_window=1000)
    dynamic = Compaction(policy=DynamicCompactionPolicy(model_info=info, threshold=0.5))
    assert dynamic.sampling_params({"model": "gpt-5.4"}) == _asked(500)
    dumped = dynamic.model_dump()
    assert dumped["policy"] == {
        "type": "dynamic",
        "model_info": {"context_window": 1000},
        "threshold": 0.5,
    }
    assert Compaction.model_validate(dumped).policy == dynamic.policy
    with pytest.raises(ValidationError, match="Unsupported compaction policy type: 'odd'"):
        Compaction.model_validate({"policy": {"type": "odd"}})
    with pytest.raises(ValidationError):
        DynamicCompactionPolicy(model_info=info, threshold=1.5)
    with pytest.raises(ValueError, match="Unknown context window for model: 'x'"):
        CompactionModelInfo.for_model("x")
    assert CompactionModelInfo.for_model("gpt-4o").context_window == 128_000


def test_what_was_compacted_is_left_out() -> None:
    items = [{"type": "a"}, {"type": "compaction", "id": 1}, {"type": "b"}]
    more = [*items, {"type": "compaction", "id": 2}, {"type": "c"}]
    assert Compaction().process_context(more) == more[3:]
    assert Compaction().process_context(items[:1]) == items[:1]
    assert Compaction().process_context([]) == []
