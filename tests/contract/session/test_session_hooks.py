"""What runs before a session is saved, and what it closes at its end."""

from __future__ import annotations

import pytest
from contract.sessions import SessionStage, content, write

from sandstream.sandbox.session.dependencies import Dependencies


def test_hooks_run_once_in_order_before_the_workspace_is_saved(sessions: SessionStage) -> None:
    async def story() -> None:
        client = sessions.client()
        called: list[str] = []
        async with sessions.fresh(client) as session:

            async def first() -> None:
                called.append("first")
                await write(session, "from hook", b"last words")

            async def second() -> None:
                called.append("second")

            session.register_pre_stop_hook(first)
            session.register_pre_stop_hook(second)
            await session.aclose()
            assert called == ["first", "second"]
            await session.start()
            assert await content(session, "from hook") == b"last words"
            await session.aclose()
            assert called == ["first", "second"]

    sessions.run(story())


def test_a_failing_hook_is_told_after_all_were_tried(sessions: SessionStage) -> None:
    async def story() -> None:
        client = sessions.client()
        called: list[str] = []

        async def fails() -> None:
            raise RuntimeError("first failure")

        async def also_fails() -> None:
            called.append("tried")
            raise RuntimeError("second failure")

        async with sessions.fresh(client) as session:
            await write(session, "file", b"mine")
            session.register_pre_stop_hook(fails)
            session.register_pre_stop_hook(also_fails)
            with pytest.raises(RuntimeError, match="first failure"):
                await session.aclose()
            assert called == ["tried"]
            assert not await session.running(), "it is shut down all the same"
            await session.start()
            assert await content(session, "file") == b"mine"

    sessions.run(story())


def test_dependencies_are_closed_with_their_session(sessions: SessionStage) -> None:
    class Resource:
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    async def story() -> None:
        template = Dependencies()
        template.bind_factory("thing", lambda _: Resource(), owns_result=True)
        client = sessions.client(template)
        one, two = await client.create(), await client.create()
        things = [await it.dependencies.require("thing") for it in (one, two)]
        assert things[0] is not things[1]
        await one.start()
        await one.aclose()
        assert [getattr(it, "closed", None) for it in things] == [True, False]
        await client.delete(one)
        await client.delete(two)

    sessions.run(story())
