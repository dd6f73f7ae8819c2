"""Work of nodes that are gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from actors.sandbox.yard import yard
from support.nats_server import NatsServer


def test_a_node_is_adopted_once_however_many_runs_want_it(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            actor = await it.actor()
            before = len(actor._workers)
            await asyncio.gather(*(actor.adopt("own-gone", start_sequence=1) for _ in range(3)))
            await actor.adopt("own-gone", start_sequence=1)
            assert len(actor._workers) == before + 1

    asyncio.run(story())
