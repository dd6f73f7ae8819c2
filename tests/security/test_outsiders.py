"""Whatever people outside publish, with whatever headers and reply subjects, they write only what
they may ask for, and read only what they may follow.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from nats.aio.client import Client as Nats
from sandstream_bus.errors import BusUnavailable, PermissionDenied
from sandstream_bus.nats.connection import Connection
from security.attacks import HEADERS, OTHERS, STREAMS, api_calls, grammar
from security.contents import api, contents, sow
from security.guarded import Guarded, guarded

from sandstream.settings import Settings

READS = tuple(
    f"$JS.API.STREAM.{call}.{it}"
    for it in ("SANDSTREAM_LOG", "SANDSTREAM_OPEN", "SANDSTREAM_AGENTS", "OBJ_sandstream-objects")
    for call in ("INFO", "MSG.GET")
)
MAY: dict[str, tuple[str, ...]] = {
    "submit": (r"sandstream\.ask\.submit\.task\.clerk",),
    "shared": (r"sandstream\.task\.clerk",),
    "follow": (r"sandstream\.alive\.harness-main", *map(re.escape, READS)),
    "approve": (r"sandstream\.ask\.approve\.run\.victim\.approval",),
    "cancel": (r"sandstream\.ask\.cancel\.run\.victim\.cancel",),
    "retry": (r"sandstream\.ask\.retry\.run\.victim\.retry",),
    "input": (r"sandstream\.ask\.input\.run\.victim\.input",),
    "consolidate": (r"sandstream\.ask\.consolidate\.memory\.shop\.merge",),
    "session": (r"sandstream\.ask\.session\.session\.talk\.\w+",),
    "anybody": (
        r"sandstream\.ask\.\w+\.run\.victim\.(cancel|approval)",
        r"sandstream\.ask\.bob\.task\.clerk",
    ),
    "console": (
        r"sandstream\.ask\.\w+\.(task\.clerk|memory\..+|session\.talk\.\w+)",
        r"sandstream\.ask\.\w+\.run\.victim\.(cancel|retry|input|approval)",
        r"sandstream\.(task\.clerk|alive\.harness-main)",
        r"\$JS\.API\.STREAM\.(INFO|MSG\.GET)\..*",
        r"\$JS\.API\.DIRECT\.GET\..*",
        r"\$JS\.API\.CONSUMER\.LIST\.SANDSTREAM_(LOG|REQUESTS|TIMERS)",
        r"\$JS\.API\.CONSUMER\.INFO\.SANDSTREAM_LOG\.harness-main",
    ),
}
"""What each user may publish, said once more, by hand: user names are those of their roles."""
OUTSIDE = (
    *(f"{it}={it}" for it in ("submit", "follow", "approve", "cancel", "retry", "input")),
    "consolidate=consolidate",
    "session=session",
    "shared=submit",
    "anybody=cancel:*,approve:*,submit:bob",
    "console=console",
    "bob=submit,follow",
)
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Without actors: what changes in the streams is an outsider's doing."""
    with guarded(tmp_path_factory.mktemp("world"), *OUTSIDE, actors=False) as found:
        asyncio.run(_as_admin(found, sow))
        yield found


async def _as_admin(world: Guarded, work: Callable[[Nats], Awaitable[Any]]) -> Any:
    admin = await world.connect("admin")
    try:
        return await work(admin)
    finally:
        await admin.close()


def _all_subjects(user: str) -> list[str]:
    asked_as = {user, "bob", "shared"}
    return list(
        dict.fromkeys(
            [*(it for name in sorted(asked_as) for it in grammar(name)), *api_calls(), *OTHERS]
        )
    )


def _may(user: str, subject: str) -> bool:
    return any(re.fullmatch(it, subject) for it in MAY[user])


def _without_asks(found: dict[str, Any]) -> dict[str, Any]:
    """All but what outsiders may add to: the messages in the stream of requests."""
    requests = {**found["SANDSTREAM_REQUESTS"], "messages": ...}
    return {**found, "SANDSTREAM_REQUESTS": requests}


def _asks(found: dict[str, Any]) -> list[str]:
    return [it["subject"] for it in found["SANDSTREAM_REQUESTS"]["messages"]]


@pytest.mark.parametrize("user", MAY)
def test_no_other_subject_can_be_published(world: Guarded, user: str) -> None:
    """Every row of the grammar, every call of the API, and the server's own subjects."""

    async def attack(admin: Nats) -> None:
        before = await contents(admin)
        connection = await world.connect(user, [])
        subjects = _all_subjects(user)
        forbidden = [it for it in subjects if not _may(user, it)]
        assert forbidden and len(forbidden) < len(subjects)
        for subject in forbidden:
            await connection.publish(subject, b"{}")
            await connection.flush()
        await world.until_denied(user, "Publish", forbidden)
        await connection.close()
        assert await contents(admin) == before

    asyncio.run(_as_admin(world, attack))


@pytest.mark.parametrize("user", MAY)
def test_what_may_be_published_has_no_other_effect(world: Guarded, user: str) -> None:
    """With every header, and with every reply subject that somebody else listens to."""

    async def attack(admin: Nats) -> None:
        before = await contents(admin)
        connection = await world.connect(user, [])
        allowed = [it for it in _all_subjects(user) if _may(user, it)]
        replies = [*grammar("bob"), *api_calls(), *OTHERS]
        for subject in allowed:
            for body in (b"{}", b"", b'{"seq":1}', b'{"last_by_subj":"sandstream.none"}'):
                for headers in HEADERS.values():
                    await connection.publish(subject, body, headers=dict(headers))
                for reply in replies if body in (b"", b'{"seq":1}') else ():
                    await connection.publish(subject, body, reply=reply)
            await connection.flush()
        # one that is answered in the end: all before it has been handled
        await api(admin, "STREAM.INFO.SANDSTREAM_LOG")
        await connection.close()
        await asyncio.sleep(0.5)
        after = await contents(admin)
        assert _without_asks(after) == _without_asks(before)
        known = len(before["SANDSTREAM_REQUESTS"]["messages"])
        assert (
            after["SANDSTREAM_REQUESTS"]["messages"][:known]
            == (before["SANDSTREAM_REQUESTS"]["messages"])
        )
        assert all(_may(user, it) for it in _asks(after)[known:])

    asyncio.run(_as_admin(world, attack))


@pytest.mark.parametrize("user", MAY)
def test_nothing_else_can_be_heard(world: Guarded, user: str) -> None:
    subjects = [
        *(">", "*.>", "sandstream.>", "sandstream.*.>", "*.live.>", "sandstream.ask.>"),
        *("sandstream.run.>", "sandstream.task.*", "sandstream.timer.>", "sandstream.due.>"),
        *("_INBOX.>", "_INBOX.bob.>", "_INBOX.*.*", "_R_.>", "$JS.>", "$JS.ACK.>", "$SYS.>"),
        *("$JS.EVENT.>", "$O.>", "$KV.>", "_API.>", "sandstream.alive.*"),
    ]
    if user not in ("follow", "console"):
        subjects += ["sandstream.live.>", "sandstream.live.victim.done"]

    async def listen() -> None:
        connection = await world.connect(user, [])
        for subject in subjects:
            await connection.subscribe(subject)
            await connection.subscribe(subject, queue="harness-main")
        queues = [f'{it}", Queue: "harness-main' for it in subjects]
        await world.until_denied(user, "Subscription", [*subjects, *queues])
        await connection.close()

    asyncio.run(listen())


def test_a_denied_read_is_told_at_once(world: Guarded) -> None:
    """The server names the subject by another name than the one that was asked for."""

    async def read() -> None:
        options = Settings.from_env(world.env("follow")).nats
        assert options is not None
        connection = await Connection.open(options)
        try:
            info = await connection.request("$JS.API.STREAM.INFO.SANDSTREAM_LOG", b"")
            assert json.loads(info.data)["config"]["name"] == "SANDSTREAM_LOG"
            for call in ("DIRECT.GET.SANDSTREAM_LOG", "STREAM.INFO.SANDSTREAM_PARKED"):
                with pytest.raises(PermissionDenied, match=f"JS.API.{call}"):
                    await connection.request(f"$JS.API.{call}", b"", timeout_s=30)
        finally:
            await connection.close()

    asyncio.run(read())


def test_answers_go_to_the_asker_only(world: Guarded) -> None:
    """Somebody else's reply subject gets nothing that its owner would take for an answer."""

    async def ask() -> None:
        alice, bob = await world.connect("follow"), await world.connect("bob")
        try:
            for sequence in range(20):
                query = json.dumps({"seq": 1}).encode()
                subject = "$JS.API.STREAM.MSG.GET.SANDSTREAM_LOG"
                await alice.publish(subject, b"not json", reply=f"_INBOX.bob.{sequence}")
                answer = json.loads((await bob.request(subject, query, timeout=5)).data)
                assert answer["message"]["seq"] == 1
        finally:
            await alice.close()
            await bob.close()

    asyncio.run(ask())


def test_no_user_no_password_no_way_in(world: Guarded) -> None:
    for how in ({}, {"user": "admin", "password": "wrong"}, {"user": "admin", "password": ""}):
        with pytest.raises(BusUnavailable, match=r"(?i)authorization"):
            asyncio.run(Connection.open(world.server.options(**how)))


def test_the_list_of_streams_is_complete(world: Guarded) -> None:
    found = asyncio.run(_as_admin(world, lambda admin: api(admin, "STREAM.NAMES")))
    assert set(found["streams"]) == set(STREAMS)
