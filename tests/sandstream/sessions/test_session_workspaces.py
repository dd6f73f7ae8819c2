"""Sessions with files: what forks, rewinds, moves and sleep do to the workspace."""

from __future__ import annotations

import asyncio

import pytest
from support.session_world import info_when, world

from sandstream import UserError
from sandstream.sessions import SessionRefused
from sandstream.testing import Step, script_for, text, tool_call

pytestmark = pytest.mark.usefixtures("home")


def _write(word: str) -> list[Step]:
    return [tool_call("exec_command", {"cmd": f"echo {word} >> words; cat words"}), text(word)]


def test_files_follow_forks_rewinds_and_sleep() -> None:
    async def main() -> None:
        steps = [*_write("one"), *_write("two"), *_write("three")]
        async with world("swo1", [script_for("begin", steps)], sandboxes=True) as (
            client,
            model,
            _,
        ):
            session = await client.sessions.create("coder", idle_s=None)
            for said in ("begin", "again"):
                await (await session.send(said)).answer()
            info = await session.info()
            assert (info.provider, info.box, info.sandbox) == ("local", "open", f"{session.id}_w1")
            first, second = await session.turns()
            assert first.tree and second.tree == info.checkpoint != first.tree

            fork = await session.fork(turn=1)
            assert (await fork.info()).activity == "sleeping"
            await (await fork.send("again")).answer()
            assert (await fork.info()).checkpoint == second.tree  # the same files
            await session.rewind(1)
            await (await session.send("again")).answer()
            assert (await session.info()).checkpoint == second.tree
            assert (await session.info()).begun == 3

            await session.pause()
            await info_when(client, session.id, lambda it: it.box == "asleep")
            await session.wake()
            await info_when(client, session.id, lambda it: it.box == "open")
            await session.configure(idle_s=0.2)
            sleeping = await info_when(client, session.id, lambda it: it.activity == "sleeping")
            assert sleeping.checkpoint == second.tree
            for it in (session, fork):
                await it.destroy()
                await info_when(client, it.id, lambda info: info.life == "destroyed")
            outputs = [str(it["input"]) for it in model.requests]
            assert any("one\\ntwo" in it for it in outputs)

    asyncio.run(main())


def test_a_preview_tells_what_a_move_would_lose() -> None:
    async def main() -> None:
        async with world("swo2", [script_for("begin", _write("one"))], sandboxes=True) as (
            client,
            _,
            _,
        ):
            session = await client.sessions.create("coder", idle_s=None)
            await (await session.send("begin")).answer()
            preview = await session.switch_preview("docker")
            assert (preview.source, preview.target, preview.is_served) == ("local", "docker", False)
            assert [it.kind for it in preview.losses] == ["processes", "packages"]
            assert (await session.switch_preview("local")).is_served is True
            plain = await client.sessions.create("plain")
            with pytest.raises(UserError, match="has no workspace"):
                await plain.switch_preview("docker")
            with pytest.raises(SessionRefused) as refused:
                await plain.switch("docker")
            assert refused.value.code == "session.no_workspace"
            moved = await session.switch("local")
            assert (moved.sandbox, moved.switching_to) == (f"{session.id}_w2", "")
            for it in (session, plain):
                await it.destroy()
                await info_when(client, it.id, lambda info: info.life == "destroyed")

    asyncio.run(main())
