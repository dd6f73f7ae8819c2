"""``sandstream tui``. Only here is the package of the UI imported: it needs Textual, an extra."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys

import msgspec
from sandstream_bus.environment import variable

from sandstream.cli.exits import CliError, Exit
from sandstream.cli.session import run_async, say
from sandstream.client import Client
from sandstream.settings import Settings


def main(arguments: argparse.Namespace) -> int:
    if arguments.demo and arguments.id:
        raise CliError(Exit.USAGE, "--demo has sessions of its own: leave out the id")
    if variable("TERM") == "dumb":
        raise CliError(
            Exit.USAGE, "tui needs a terminal that can move its cursor; this one has TERM=dumb"
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CliError(
            Exit.USAGE, "tui needs a terminal; `sandstream sessions --json` is for programs"
        )
    try:
        import textual  # noqa: F401
    except ImportError:
        raise CliError(Exit.USAGE, "tui needs Textual: pip install 'sandstream[tui]'") from None
    return run_async(_tui(arguments), debug=arguments.debug)


async def _tui(arguments: argparse.Namespace) -> int:
    from sandstream.tui.app import run_app
    from sandstream.tui.settings import read_settings

    settings = await asyncio.to_thread(read_settings, Settings.from_env().home)
    if arguments.theme:
        settings = msgspec.structs.replace(settings, theme=arguments.theme)
    if arguments.demo:
        from sandstream.tui.demo.stage import demo

        say("starting a private server and the actors of the demo …")
        async with demo() as place:
            playing = asyncio.ensure_future(place.play())
            shown = asyncio.ensure_future(run_app(place.client, settings))
            # a terminal that is closed must not leave the demo behind
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, shown.cancel)
            try:
                code = await shown
            finally:
                playing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.gather(playing, return_exceptions=True)
                say("ending the sessions of the demo …")
        return Exit.FAILED if code else Exit.OK
    async with await Client.connect(Settings.from_env()) as client:
        code = await run_app(client, settings, open_id=arguments.id or "")
    return Exit.FAILED if code else Exit.OK
