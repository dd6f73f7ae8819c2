"""A session goes from this machine to Docker, to E2B and back, while actors are killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from actors.sessions.desk import obedient
from chaos.sandbox.fleet import END, HARNESS
from chaos.sessions.fleet import AGENT, SESSIONS
from chaos.sessions.travels import TravelFleet
from sandstream_bus.wire.sessions import (
    CreateSession,
    DestroySession,
    SendMessage,
    SwitchProvider,
)
from sandstream_workspaces.store import WorkspaceStore
from support.engines import engine

from sandstream.testing import ScriptedModel

pytestmark = pytest.mark.timeout(300)  # a container and a vendor in one test

COMMANDS = {
    "pack": "mkdir -p 'a b/ü'; head -c 300000 /dev/urandom > 'a b/ü/big'; echo '#!' > tool; "
    "chmod 750 tool; ln -s 'a b/ü/big' link; ln -s nowhere dangling; mkdir empty",
    "look": "ls -l tool | cut -c1-10 >> seen; readlink link dangling >> seen; "
    "wc -c < link >> seen; ls -d empty >> seen; echo x >> counter",
}
SEEN = "-rwxr-x---\na b/ü/big\nnowhere\n300000\nempty\n"
LEGS: tuple[tuple[str, dict[str, str], str, str, str], ...] = (
    ("docker", {"image": engine.PYTHON}, "sessions.switch_saved", "docker", "sandbox.after_create"),
    ("e2b", {}, "sessions.switch_opened", "e2b", "sandbox.after_create"),
    ("local", {}, "sessions.switch_verified", "e2b", "sandbox.before_delete"),
)
"""Where to, with which options, and where the sessions actor and a sandbox actor die meanwhile."""


def test_a_session_travels_with_files_and_history(tmp_path: Path) -> None:
    async def main(model_url: str) -> None:
        async with TravelFleet(tmp_path / "fleet", model_url) as fleet:
            kinds = (HARNESS, END, "local", "docker", "e2b", SESSIONS)
            await fleet.replicas_of(**dict.fromkeys(kinds, 1))
            create = CreateSession(agent=AGENT, idle_s=None, input="pack")
            await fleet.ask("t", create)
            await fleet.idle("t")
            await fleet.ask("t", SendMessage(input="look"))
            await fleet.idle("t")
            for provider, options, point, kind, its_point in LEGS:
                before = await fleet.state("t")
                sessions, boxes = await fleet.harmed(**{SESSIONS: point, kind: its_point})
                request = SwitchProvider(provider=provider, options=options)
                _, moved = await asyncio.gather(
                    fleet.followed(**{SESSIONS: sessions, kind: boxes}), fleet.ask("t", request)
                )
                old, new = before.workspace, moved.workspace
                assert old is not None and new is not None
                assert (new.provider, new.tree) == (provider, old.tree)  # equal digests
                await _look(fleet, is_harmed=provider == "docker")
                state = await fleet.idle("t")
                assert (state.status, state.refused, state.trouble) == ("completed", [], "")
                await fleet.only_at(provider)
            await _judge(fleet)
            await fleet.ask("t", DestroySession())
            await fleet.life_is("t", "destroyed")
            await fleet.only_at("")

    with ScriptedModel(obedient(COMMANDS), strict=False) as model:
        asyncio.run(main(model.base_url))


async def _look(fleet: TravelFleet, *, is_harmed: bool) -> None:
    """A turn at the new provider; ``is_harmed``: its harness dies."""
    if not is_harmed:
        await fleet.ask("t", SendMessage(input="look"))
        return
    [harness] = await fleet.harmed(**{HARNESS: "harness.after_commit"})
    followed = fleet.followed(**{HARNESS: harness})
    await asyncio.gather(followed, fleet.ask("t", SendMessage(input="look")))


async def _judge(fleet: TravelFleet) -> None:
    turns = await fleet.client.bus.sessions.turns("t")
    assert [it.provider for it in turns] == ["local", "local", "docker", "e2b", "local"]
    assert [it.items for it in turns] == [4, 8, 12, 16, 20]
    assert await fleet.history("t") == 20
    last = turns[-1].tree
    assert await fleet.content(last, "seen") == SEEN * 4
    assert await fleet.content(last, "counter") == "x\n" * 4  # each command ran once
    store = WorkspaceStore(fleet.client.bus)
    changed = await store.diff(turns[0].tree, last)
    assert sorted(changed.added) == ["counter", "seen"]
    assert (changed.removed, changed.changed) == ([], [])
