"""The list, with a pilot, against real actors on a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sandstream_bus.wire.messages import ApprovalDecided
from support.nats_server import NatsServer
from support.tui.stage import screen, stage
from support.waiting import eventually

from sandstream.tui.conversation.screen import WorkScreen
from sandstream.tui.overview.screen import ListScreen

pytestmark = pytest.mark.timeout(240)


def test_a_session_is_started_peeked_at_answered_and_opened(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def go() -> None:
        async with stage(nats_server, tmp_path) as place, screen(place.client) as ui:
            await ui.shows("no sessions and no runs yet")
            await ui.press("question_mark")
            await ui.shows("Detaching never stops work")
            await ui.press("escape", "n")
            await ui.shows("New session", "coder", "talker")
            await ui.press("down", "enter")
            await ui.type("please do:refund")
            await ui.shows("asks to run")  # it was opened
            await ui.press("tab", "left")
            await ui.shows("Needs you", "please do:refund", "talker")
            await ui.press("a")  # the question is shown before it is answered
            await ui.shows("asks to run", "refund(amount=12)", "Reply", "a allow")
            await ui.press("m")
            await ui.shows("Why is refund rejected?")
            await ui.type("too much")
            await ui.shows("Idle and sleeping", "did refund")
            await ui.press("t")
            await ui.type("hello")
            await ui.shows("Hello.")
            await ui.press("escape", "enter")
            await ui.until(lambda: isinstance(ui.app.screen, WorkScreen), "the session is open")
            shown = await ui.shows("refund rejected by", "too much", "did refund", "Hello.")
            assert shown.index("did refund") < shown.index("Hello.")

    asyncio.run(go())


def test_runs_are_listed_filtered_opened_and_stopped(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def go() -> None:
        async with stage(nats_server, tmp_path) as place, screen(place.client) as ui:
            done = await place.client.submit("talker", "hello there", key="first")
            await place.client.wait(done)
            await place.client.submit("talker", "do:never", key="second")
            await ui.shows("Working", "second", "Done", "first", "Hello.")
            await ui.press("slash")
            await ui.press(*"first")
            await ui.until(lambda: "second" not in ui.text(), "the list is filtered")
            await ui.press("enter", "enter")
            await ui.shows("hello there", "Hello.", "done")
            await ui.type("more")
            await ui.shows("the run has ended")
            await ui.press("ctrl+u", "left", "escape")
            await ui.shows("second")
            await ui.press("up", "x")
            await ui.until(lambda: "Working" not in ui.text(), "the run is cancelled")
            assert (await place.client.get("second")).status == "cancelled"

    asyncio.run(go())


def test_the_cursor_stays_at_the_top_until_a_person_moves_it(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def go() -> None:
        async with stage(nats_server, tmp_path) as place:
            sessions = place.client.sessions
            await sessions.create("coder", id="one", title="First", input="do:noisy")
            async with screen(place.client) as ui:
                shown = ui.app.screen
                assert isinstance(shown, ListScreen)

                def selected() -> str:
                    return shown.selected.id if shown.selected else ""

                await ui.shows("Working", "First")
                await ui.until(lambda: selected() == "one", "the only entry is selected")
                await sessions.create("talker", id="two", title="Second", input="do:refund")
                await ui.shows("Needs you", "Second")
                await ui.until(lambda: selected() == "two", "the cursor is at the top")
                await ui.press("down")
                assert selected() == "one"
                await sessions.create("talker", id="three", title="Third", input="do:refund")
                await ui.shows("2 need you", "Third")
                assert selected() == "one"  # it stays with the entry
                await (await sessions.get("one")).interrupt()
                await ui.shows("Idle and sleeping")
                assert selected() == "one"

    asyncio.run(go())


def test_a_session_is_renamed_forked_archived_and_destroyed(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def go() -> None:
        async with stage(nats_server, tmp_path) as place:
            await place.client.sessions.create("talker", id="one", input="hi")
            async with screen(place.client) as ui:
                await ui.shows("Idle", "Hello.")
                await ui.press("ctrl+r")
                await ui.shows("Title")
                await ui.press(*["backspace"] * 2)
                await ui.type("named")
                await ui.shows("named")
                await ui.press("f")
                await ui.shows("fork of ")
                await ui.press("left")
                await ui.shows("└ ")
                await ui.press("e")
                await ui.shows("Done")
                await ui.press("up", "D")
                await ui.shows("Destroy named?", "Keep it")
                await ui.press("enter")
                await ui.until(lambda: "Keep it" not in ui.text(), "the question is closed")
                shown = ui.app.screen
                assert isinstance(shown, ListScreen)
                shown.on_screen_resume()
                assert shown.selected is not None  # also before the lines are drawn again
                assert (await (await place.client.sessions.get("one")).info()).life == "open"
                await ui.press("D")
                await ui.shows("Destroy named?")
                await ui.press("down", "enter")

                async def is_gone() -> bool:
                    one = await place.client.sessions.get("one")
                    return (await one.info()).life == "destroyed"

                await eventually(is_gone, within_s=30, what="the session is destroyed")
                await ui.until(lambda: "└ " not in ui.text(), "only the fork is listed")

    asyncio.run(go())


def test_the_inbox_has_the_questions_of_all_sessions_and_runs(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def go() -> None:
        async with stage(nats_server, tmp_path) as place:
            sessions = place.client.sessions
            one = await sessions.create("talker", id="one", title="First", input="do:refund")
            await place.client.submit("talker", "do:refund", key="loose")
            async with screen(place.client) as ui:
                await ui.shows("2 need you")
                await ui.press("f2")
                await ui.shows("Questions to you", "First", "loose", "a allow")
                await ui.press("m")
                await ui.shows("Why is refund rejected?")
                await ui.type("too much")
                await ui.until(
                    lambda: ui.text().count("? First") + ui.text().count("? loose") == 1,
                    "one question is answered",
                )
                await ui.shows("a allow")
                await ui.press("A")
                await ui.shows("nothing waits for you")
                await ui.press("escape")
                await ui.until(lambda: "need you" not in ui.text(), "nothing needs the person")
            decided = [
                it.event
                for run in ("loose", (await one.turns())[0].run)
                for it in await place.client.events(run)
                if isinstance(it.event, ApprovalDecided)
            ]
            assert sorted((it.approve, it.always, it.message) for it in decided) == [
                (False, False, "too much"),
                (True, True, None),
            ]

    asyncio.run(go())
