"""Bad days: narrow terminals, no colours, outages, long logs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sandstream_bus.bus import Bus
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer
from support.runs import call, done, finished, started
from support.tui.stage import screen, stage

from sandstream.tui.conversation.block_views import BlockView
from sandstream.tui.conversation.transcript_view import TranscriptView

pytestmark = pytest.mark.timeout(240)
LONG = RunId("long")


def test_forty_columns_and_a_resize_show_what_matters(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def go() -> None:
        async with stage(nats_server, tmp_path) as place:
            await place.client.sessions.create("talker", id="one", title="Shop", input="do:refund")
            async with screen(place.client, size=(40, 16)) as ui:
                await ui.shows("1 need you", "? Shop")
                await ui.press("space")
                await ui.shows("asks to run")
                await ui.press("space", "enter")
                shown = await ui.shows("refund(amount=12)", "needs you")
                assert max(map(len, shown.splitlines())) <= 40
                await ui.pilot.resize_terminal(120, 40)
                await ui.shows("waits for your answer", "turn 1", "tokens")
                await ui.pilot.resize_terminal(20, 6)
                await ui.pilot.resize_terminal(110, 34)
                await ui.shows("a allow")
                await ui.press("a")
                await ui.shows("did refund")

    asyncio.run(go())


def test_states_are_read_without_colours(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def go() -> None:
        async with stage(nats_server, tmp_path) as place, screen(place.client) as ui:
            assert ui.app.no_color
            await place.client.sessions.create("talker", id="one", title="Shop", input="do:refund")
            await ui.shows("? Shop", "needs you")
            grey = ui.app._filters[0]
            background = ui.app.screen.background_colors[1]
            strips = ui.app.screen._compositor.render_strips()
            styles = [it.style for strip in strips for it in strip.apply_filter(grey, background)]
            colours = {it.color.triplet for it in styles if it and it.color and it.color.triplet}
            assert all(red == green == blue for red, green, blue in colours)

    asyncio.run(go())


def test_an_outage_is_shown_and_nothing_is_missed(nats_server: NatsServer, tmp_path: Path) -> None:
    async def go() -> None:
        async with stage(nats_server, tmp_path) as place:
            session = await place.client.sessions.create("talker", id="one", input="hi")
            async with screen(place.client, open_id="one") as ui:
                await ui.shows("Hello.", "turn 1 completed")
                nats_server.kill()
                await ui.shows("reconnecting, last sequence")
                await ui.type("do:mark")
                await ui.shows("⧗ do:mark", "sent once it is connected")
                nats_server.start()
                await ui.until(lambda: "reconnecting" not in ui.text(), "it is connected again")
                await ui.shows("Some text with code.", "turn 2 completed")
                assert len(await session.turns()) == 2  # the message was sent once

    asyncio.run(go())


async def write_long(bus: Bus, pairs: int) -> None:
    """A run with many calls, written as actors write it."""
    subjects = bus.subjects
    await bus.log.send(subjects.start(LONG, "elsewhere"), started(), msg_id="long:0")
    for first in range(0, pairs, 500):
        await asyncio.gather(
            *(
                bus.log.send(subjects.call(LONG, "elsewhere"), call(n), msg_id=f"long:c{n}")
                for n in range(first, min(first + 500, pairs))
            )
        )
        await asyncio.gather(
            *(
                bus.log.send(subjects.result(LONG, "elsewhere"), finished(n), msg_id=f"long:r{n}")
                for n in range(first, min(first + 500, pairs))
            )
        )


def test_ten_thousand_events_have_few_widgets(nats_server: NatsServer, tmp_path: Path) -> None:
    async def go() -> None:
        async with stage(nats_server, tmp_path) as place:
            await write_long(place.bus, 5000)
            await place.bus.log.send(place.bus.subjects.done(LONG), done(), msg_id="long:done")
            async with screen(place.client, open_id=LONG) as ui:
                await ui.shows("end", "#1")
                view = ui.app.screen.query_one(TranscriptView)
                await ui.until(lambda: len(view.transcript.blocks) > 5000, "all events are read")
                for _ in range(12):
                    await ui.press("pageup")
                await ui.until(lambda: len(view.query(BlockView)) <= 300, "old blocks are pruned")
                assert not view.is_following
                await ui.press("ctrl+home")
                await ui.shows("❯ hello")
                assert len(view.query(BlockView)) <= 300
                await ui.press("ctrl+end")
                await ui.until(lambda: view.is_following, "it follows again")
                await ui.shows("end")

    asyncio.run(go())
