"""The pictures of docs/tui.md: the demo, as it looks after some seconds.

    python docs/tui_pictures.py

It is not one of the generators of ``make docs``: ages and identifiers differ each time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

from sandstream.tui.app import SandstreamApp
from sandstream.tui.conversation.screen import WorkScreen
from sandstream.tui.demo.stage import demo

PICTURES = Path(__file__).resolve().parent / "pictures"
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_SIZE = (120, 30)
_WAIT_S = 60.0


async def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    async with demo() as place:
        playing = asyncio.ensure_future(place.play())
        app = SandstreamApp(place.client)
        async with app.run_test(size=_SIZE) as pilot:
            await _until(lambda: any(it.fork_of for it in app.desk.entries()))
            await pilot.pause(1)
            asks = next(it for it in app.desk.entries() if it.group == "needs you")
            app.screen.select(asks.id)  # type: ignore[attr-defined]
            await pilot.press("space")
            await pilot.pause(1)
            _save(app, "tui-list")
            await pilot.press("space")
            shop = next(it for it in app.desk.sessions.values() if it.title == "Fix the shop")
            app.open_session(await place.client.sessions.get(shop.id))
            await _until(lambda: isinstance(app.screen, WorkScreen) and app.screen.info is not None)
            await pilot.pause(2)
            _save(app, "tui-session")
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)


def _save(app: SandstreamApp, name: str) -> None:
    picture = app.export_screenshot(title="sandstream tui")
    picture = _FONTS.sub("", picture).replace("Fira Code", "ui-monospace, Menlo, monospace")
    (PICTURES / f"{name}.svg").write_text(picture)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(_WAIT_S):
        while not holds():
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main())
