"""Whoever parks a message of a run ends that run, under its own role, with all that follows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from security.guarded import DEADLINE_S, Guarded, Person, guarded

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("world"), "alice=submit,follow") as found:
        yield found


@pytest.mark.parametrize("kind", ["call.app", "sandbox.local", "result.main"])
def test_a_run_ends_and_lets_its_conversation_go(world: Guarded, kind: str) -> None:
    """Kind by kind, it is the worker, the sandbox actor or the harness that cannot read."""

    async def main() -> None:
        admin, outside = await world.connect("admin"), await world.connect("alice")
        alice = Person(outside, "alice")
        room, broken = kind.replace(".", "-"), f"alice=broken-{kind.replace('.', '-')}"

        async def say(key: str, words: str) -> None:
            task = {"input": words, "session": room}
            await alice.ask("task.clerk", task, **{"Sandstream-Key": key.removeprefix("alice=")})

        await say(broken, "wait, please")
        await alice.until(broken, "call.app")
        await say(f"next-{room}", "weather, please")
        await admin.request(
            f"sandstream.run.{broken}.{kind}", b"{", headers={"Nats-Msg-Id": f"junk-{kind}"}
        )
        end = await alice.until(broken, "done")
        assert end["error"]["code"] == "parked"
        async with asyncio.timeout(DEADLINE_S):
            while await _is_open(alice, broken):
                await asyncio.sleep(0.05)
        assert (await alice.until(f"alice=next-{room}", "done"))["output"] == "8 degrees."
        await say(f"later-{room}", "weather, please")
        assert (await alice.until(f"alice=later-{room}", "done"))["output"] == "8 degrees."
        await outside.close()
        await admin.close()

    asyncio.run(main())
    assert world.violations() == []


async def _is_open(alice: Person, run: str) -> bool:
    import base64

    query = {"last_by_subj": f"sandstream.open.{run}"}
    found = await alice.stored(query, "SANDSTREAM_OPEN")
    return found is not None and not json.loads(base64.b64decode(found["data"])).get("ended")
