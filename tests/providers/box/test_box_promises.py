"""Promises between clients of one box, and to whoever reads its output."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from providers.box.agent_process import running_agent
from sandstream_providers.interface import ExecSpec, FileWrite, ResolveRule, ScanOutdated, WrongKind


def test_differences_are_only_told_to_whoever_has_the_rest(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_agent(tmp_path) as agent:
            one, other = agent.box(), agent.box()
            (Path(one.root) / "a").write_text("a")
            assert [it.entry.path async for it in one.scan([], full=True)] == ["a"]
            (Path(one.root) / "b").write_text("b")
            assert len([it async for it in other.scan([], full=True)]) == 2
            with pytest.raises(ScanOutdated):
                _ = [it async for it in one.scan([], full=False)]
            assert len([it async for it in one.scan([], full=True)]) == 2
            assert [it async for it in one.scan([], full=False)] == []
            await one.close()
            await other.close()

    asyncio.run(run())


def test_exclusive_takes_a_dangling_link_for_something(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            (Path(box.root) / "link").symlink_to("nowhere")
            rule = ResolveRule(roots=[box.root])
            change = FileWrite(path=f"{box.root}/link", data=b"x", exclusive=True)
            with pytest.raises(WrongKind):
                await box.change("op", [change], rule)
            assert not (Path(box.root) / "nowhere").exists()
            await box.close()

    asyncio.run(run())


def test_the_middle_of_a_character_is_kept_back_while_a_command_runs(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            script = r"printf 'a\303'; read x; printf '\244b\303'"
            spec = ExecSpec(argv=["sh", "-c", script], cwd=box.root, keep_stdin=True)
            first = await box.run("run", spec, wait_s=1.0)
            assert (first.state, first.stdout) == ("running", b"a")
            second = await box.interact("go", first.session, b"\n", wait_s=20.0)
            assert (second.state, second.stdout) == ("exited", b"\xc3\xa4b\xc3")
            await box.close()

    asyncio.run(run())


def test_a_file_that_its_owner_may_not_write_can_be_filled(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            rule = ResolveRule(roots=[box.root])
            file = Path(box.root) / "pack"
            path = str(file)
            await box.change("make", [FileWrite(path=path, data=b"one", mode=0o444)], rule)
            await box.append("more", path, b"two", rule, at=3)
            assert file.read_bytes() == b"onetwo"
            assert file.stat().st_mode & 0o777 == 0o444
            await box.close()

    asyncio.run(run())
