"""Actors, workers and programs are trusted with the streams of their installation. Permissions keep
each to its part, so that a mistake, or a stolen password, reaches less.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator

import pytest
from security.attacks import STREAMS, api_calls, grammar
from security.contents import api, contents, sow
from security.guarded import ACTORS, Guarded, guarded
from support.waiting import eventually

S = r"sandstream\."
_ALIVE = rf"{S}alive\.harness-main"
_SANDBOXES = rf"{S}sandbox\.box\..*"
_HARNESS = (
    rf"{S}run\.victim\..*",
    rf"{S}open\.victim",
    rf"{S}timer\.victim\.retry",
    rf"{S}live\.victim\.delta",
    rf"{S}session\.talk\.(log|snapshot)",
    rf"{S}memory\.shop\.merge",
    _ALIVE,
)
_ENDING = (  # of a run one of whose messages they parked
    rf"{S}run\.victim\.(result\.main|turn\.main|cancel|done)",
    rf"{S}open\.victim",
    rf"{S}session\.talk\.(log|snapshot)",
)
_OBJECTS = r"\$O\.sandstream-objects\..*"
MAY: dict[str, tuple[str, ...]] = {
    "harness": (*_HARNESS, rf"{S}parked\.harness-main\.7"),
    "worker": (
        rf"{S}run\.victim\.(started\.t1-0|sandbox\..*)",
        *_ENDING,
        rf"{S}agent\.clerk",
        rf"{S}live\.victim\.delta",
        rf"{S}trace\.a+\.spans",
        rf"{S}sandbox\.box\.op\..*",
        rf"{S}memory\.shop\.merge",
        _ALIVE,
    ),
    "sandbox": (
        rf"{S}run\.victim\.sandbox\.local(\.node1)?",
        *_ENDING,
        _SANDBOXES,
        rf"{S}memory\.shop\.(state|edit|event)",
        rf"{S}live\.victim\.output",
        rf"{S}parked\.harness-main\.7",
        _ALIVE,
    ),
    "memory": (*_HARNESS, rf"{S}memory\.shop\..*", _SANDBOXES),
    "sessions": (
        rf"{S}session\.talk\..*",
        rf"{S}run\.victim\.(start\.main|turn\.main|cancel|done)",
        rf"{S}open\.victim",
        rf"{S}sandbox\.box\.op\..*",
        rf"{S}timer\.victim\.retry",
        rf"{S}live\.\w+\.session",
        _ALIVE,
    ),
    "tracing": (rf"{S}trace\.victim\.exported\.main", _ALIVE),
    "watcher": (_ALIVE,),
}
"""What each may publish of the grammar, by hand."""
NEVER = re.compile(
    r"\$JS\.API\.(STREAM\.(CREATE|UPDATE|DELETE|MSG\.DELETE|SNAPSHOT|RESTORE|LEADER|PEER|TEMPLATE)"
    r"|ACCOUNT|META|SERVER|STREAM\.PURGE\.(?!SANDSTREAM_MEMORY|OBJ_sandstream-memory)"
    r"|CONSUMER\.(LEADER|PAUSE|UNPIN|RESET|DURABLE)"
    r"|(CONSUMER\.\w+|CONSUMER\.MSG\.NEXT|STREAM\.MSG\.GET|DIRECT\.GET)"
    r"\.(SANDSTREAM_PARKED|SANDSTREAM_TIMERS\.harness-main))"
)
"""Calls of the API that no actor needs."""
pytestmark = pytest.mark.timeout(90)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("world"), actors=False) as found:
        asyncio.run(_sow(found))
        yield found


async def _sow(world: Guarded) -> None:
    admin = await world.connect("admin")
    await sow(admin)
    await admin.close()


def test_every_actor_has_a_row() -> None:
    assert set(ACTORS) <= set(MAY)


@pytest.mark.parametrize("user", MAY)
def test_an_actor_keeps_to_its_part(world: Guarded, user: str) -> None:
    subjects = [it for name in (user, "bob") for it in grammar(name)]
    forbidden = [it for it in subjects if not any(re.fullmatch(p, it) for p in MAY[user])]
    forbidden += [it for it in api_calls() if NEVER.match(it)]
    assert len(forbidden) > 60

    async def attack() -> None:
        admin = await world.connect("admin")
        before = await contents(admin)
        connection = await world.connect(user, [])
        for subject in forbidden:
            await connection.publish(subject, b"{}")
            await connection.flush()
        await connection.close()
        await world.until_denied(user, "Publish", forbidden, is_outside=False)
        assert await contents(admin) == before
        await admin.close()

    asyncio.run(attack())


@pytest.mark.parametrize("user", MAY)
def test_an_actor_hears_nobody_elses_answers(world: Guarded, user: str) -> None:
    subjects = [">", "sandstream.>", "_INBOX.>", "_INBOX.admin.>", "sandstream.ask.>", "_R_.>"]
    subjects += ["sandstream.run.>", "$JS.>", "$SYS.>", "sandstream.live.>", "sandstream.alive.*"]
    if user == "sandbox":
        subjects.remove("sandstream.alive.*")  # it serves nodes that come and go

    async def listen() -> None:
        connection = await world.connect(user, [])
        for subject in subjects:
            await connection.subscribe(subject)
            await connection.flush()
        await connection.close()
        await world.until_denied(user, "Subscription", subjects)

    asyncio.run(listen())


def test_only_actors_can_answer_for_their_consumers(world: Guarded) -> None:
    async def listen() -> None:
        connection = await world.connect("tracing", [])
        await connection.subscribe("sandstream.alive.harness-main")
        await connection.flush()
        await connection.close()
        await world.until_denied("tracing", "Subscription", ["sandstream.alive.harness-main"])

    asyncio.run(listen())


def test_an_actor_answers_only_to_inboxes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """With the rights of a harness, the asker would write to the log."""

    async def ask(world: Guarded) -> None:
        admin = await world.connect("admin")
        question = "sandstream.alive.harness-main"
        assert json.loads((await admin.request(question, b"", timeout=10)).data) is not None
        before = await contents(admin)
        for reply in ("sandstream.run.victim.done", "sandstream.open.victim", "$JS.API.INFO"):
            await admin.publish(question, b"", reply=reply)
        # it answers in turn
        assert json.loads((await admin.request(question, b"", timeout=10)).data) is not None
        after = await contents(admin)
        await admin.close()
        for stream in STREAMS:
            assert after[stream]["messages"] == before[stream]["messages"]
        assert not any("harness: " in it for it in world.violations())

    with guarded(tmp_path_factory.mktemp("one"), actors=False) as found:
        found.start("harness", *ACTORS["harness"])
        asyncio.run(ask(found))


def test_a_reply_subject_passes_by_the_permissions_of_insiders(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Why insiders are trusted, and outsiders have an account of their own: the server answers to
    any subject of the account, an API call among them. The tracing actor may not delete a stream.
    """

    async def delete(world: Guarded) -> None:
        admin, tracing = await world.connect("admin"), await world.connect("tracing")
        await tracing.publish(
            "$JS.API.DIRECT.GET.SANDSTREAM_LOG",
            b'{"seq":999999}',  # not found: an answer without a body, as a delete wants it
            reply="$JS.API.STREAM.DELETE.SANDSTREAM_PARKED",
        )

        async def is_gone() -> bool:
            names = (await api(admin, "STREAM.NAMES"))["streams"]
            return "SANDSTREAM_PARKED" not in names

        await eventually(is_gone, what="the stream is gone")
        assert not any("tracing: " in it for it in world.violations())
        await tracing.close()
        await admin.close()

    with guarded(tmp_path_factory.mktemp("limit"), actors=False) as found:
        asyncio.run(delete(found))
