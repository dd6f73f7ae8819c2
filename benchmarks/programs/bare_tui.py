"""A bare app of the library that the terminal UI is made with: an input, and a log that shows the
messages of a subject. The baseline of ``tui_latency``.

    python bare_tui.py SUBJECT LINES
"""

from __future__ import annotations

import sys

from sandstream_bus.nats.subscription import CoreMessage
from textual.app import App, ComposeResult
from textual.widgets import Input, Log

from sandstream.client import Client
from sandstream.settings import Settings


class Bare(App[None]):
    def compose(self) -> ComposeResult:
        yield Log()
        yield Input()

    async def on_mount(self) -> None:
        subject, lines = sys.argv[1:]
        log = self.query_one(Log)
        log.write_lines(f"look_up(order={n})" for n in range(int(lines)))

        def show(message: CoreMessage) -> None:
            log.write_line(message.data.decode())

        self._client = await Client.connect(Settings.from_env())
        connection = self._client.bus.connection
        self._subscription = await connection.subscribe(subject, show)
        await connection.flush()
        self.query_one(Input).focus()
        log.write_line("ready")


if __name__ == "__main__":
    Bare().run()
