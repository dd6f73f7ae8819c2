"""Screens as text, compared with files: ``SANDSTREAM_WRITE_SCREENS=1`` writes them anew. Look at
them before you commit them. What differs each time is masked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from pathlib import Path

import pytest
from support.nats_server import NatsServer
from support.tui.stage import Screen, screen, stage
from support.waiting import until

pytestmark = pytest.mark.timeout(240)
SCREENS = Path(__file__).with_name("screens")
MASKS = (
    (re.compile(r"\b\d+[smhd]\b"), "1s"),
    (re.compile(r"#\d+"), "#1"),
    (re.compile(r"\b[\d.]+k? tokens"), "1 tokens"),
    (re.compile(r"(?<= )[\d.]+k?(?= +1s)"), "1"),
    (re.compile(r" \d+\.\ds\b"), ""),
    (re.compile(r"approved by \S+"), "approved by ann"),
    (re.compile(r" +"), " "),
)
"""Widths of what is masked differ, so runs of spaces count as one."""


def masked(shown: str) -> str:
    for pattern, mask in MASKS:
        shown = pattern.sub(mask, shown)
    return "\n".join(line.rstrip() for line in shown.splitlines()) + "\n"


async def check(name: str, ui: Screen) -> None:
    """Wait until the screen looks like the file: it may still change, as lists are read again."""
    file = SCREENS / f"{name}.txt"
    if os.environ.get("SANDSTREAM_WRITE_SCREENS"):
        await ui.pilot.pause(2)
        file.write_text(masked(ui.text()))
    with contextlib.suppress(AssertionError):  # the comparison tells more
        await until(lambda: masked(ui.text()) == file.read_text())
    assert masked(ui.text()) == file.read_text()


def test_the_screens_look_as_they_did(nats_server: NatsServer, tmp_path: Path) -> None:
    async def go() -> None:
        async with stage(nats_server, tmp_path) as place:
            sessions = place.client.sessions
            shop = await sessions.create("coder", id="one", title="Shop", input="do:write")
            async with screen(place.client, size=(100, 28), notifications=False) as ui:
                await ui.shows("Idle and sleeping", "did write")
                await shop.fork(id="two", title="Shop, another way")
                await sessions.create("talker", id="three", title="Refunds", input="do:refund")
                await ui.shows("└ ", "Needs you")
                await check("list", ui)
                ui.app.screen.select("three")  # type: ignore[attr-defined]
                await ui.press("space")
                await ui.shows("asks to run", "a allow")
                await check("peek", ui)
                await ui.press("space")
                ui.app.open_session(shop)
                await ui.shows("turn 1 completed")
                await check("session", ui)
                await ui.press("slash", "s")
                await ui.shows("/switch PROVIDER")
                await check("completion", ui)
                await ui.press("escape", "ctrl+c", "f1")
                await ui.shows("Detaching never stops work")
                await check("help", ui)

    asyncio.run(go())
