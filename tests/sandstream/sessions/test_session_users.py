"""Sessions of users: whose they are, and how their owners name them."""

from __future__ import annotations

import asyncio
import os

import pytest
from support.session_world import info_when, world

from sandstream import Client
from sandstream.sessions import SessionRefused
from sandstream.settings import Settings
from sandstream.testing import script_for, text, tool_call

pytestmark = pytest.mark.usefixtures("home")


def _settings(prefix: str, user: str) -> Settings:
    return Settings.from_env(
        {
            "SANDSTREAM_PREFIX": prefix,
            "SANDSTREAM_HOME": os.environ["SANDSTREAM_HOME"],
            "SANDSTREAM_USER": user,
        }
    )


def test_a_user_has_sessions_of_her_own() -> None:
    async def main() -> None:
        wish = [tool_call("deploy", {"place": "prod"}), text("Done.")]
        async with (
            world("sus1", [script_for("deploy now", wish)]) as (anybody, _, _),
            await Client.connect(_settings("sus1", "alice")) as alice,
            await Client.connect(_settings("sus1", "bob")) as bob,
        ):
            session = await alice.sessions.create("careful", id="blog")
            assert session.id == "alice=blog"
            assert (await alice.sessions.get("blog")).id == "alice=blog"
            sent = await session.send("deploy now")
            info = await info_when(alice, session.id, lambda it: it.activity == "needs you")
            assert info.active is not None and info.active.messages[0].by == "alice"
            await session.approve()
            assert await sent.answer() == "Done."
            fork = await session.fork(id="other")
            assert fork.id == "alice=other"

            theirs = await bob.sessions.create("careful", id="blog")
            assert theirs.id == "bob=blog"
            seen = await bob.sessions.get("alice=blog")
            with pytest.raises(SessionRefused) as refused:
                await seen.fork(id="stolen")
            assert refused.value.code == "session.forbidden"
            listed = {it.id for it in await anybody.sessions.list()}
            assert listed == {"alice=blog", "alice=other", "bob=blog"}

    asyncio.run(main())
