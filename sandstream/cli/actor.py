"""``sandstream actor``: one replica of an actor."""

from __future__ import annotations

import argparse
import asyncio
import os

from sandstream.cli.exits import CliError, Exit

_KINDS = {"harness": "takes the model turns of a pool's runs"}
_NOTE = "tool hosts are started by `sandstream worker app.py`"


def main(arguments: argparse.Namespace) -> int:
    if arguments.kind is None:
        return _list(arguments)
    if arguments.kind not in _KINDS:
        raise CliError(
            Exit.USAGE,
            f"there is no actor {arguments.kind!r}; the kinds are: {', '.join(_KINDS)} ({_NOTE})",
        )
    from sandstream.cli.session import run_async

    return run_async(_serve(arguments), debug=arguments.debug)


def _list(arguments: argparse.Namespace) -> int:
    from sandstream.cli.render import out
    from sandstream.cli.session import put_json, say

    for kind, meaning in _KINDS.items():
        if arguments.json:
            put_json({"kind": kind, "meaning": meaning})
        else:
            out().line(f"{kind:<10} {meaning}")
    say(_NOTE)
    return Exit.OK


async def _serve(arguments: argparse.Namespace) -> int:
    from sandstream.cli.services import announce, harness, opened, ready_of
    from sandstream.cli.session import say, stop_signals

    pipe: int | None = arguments.parent_pipe
    async with (
        opened("sandstream-harness") as bus,
        harness(bus, arguments.pool, arguments.concurrency),
    ):
        stopped = stop_signals()
        if pipe is not None:
            # The parent holds the other end and never writes: it reads as ended when the parent is
            # gone, however it went.
            os.set_blocking(pipe, False)
            asyncio.get_running_loop().add_reader(pipe, stopped.set)
        else:
            announce(
                ready_of(bus, pool=arguments.pool, replicas=1),
                as_json=arguments.json,
                title="harness is ready",
                hints=["start more of them, on any machine, to go faster"],
            )
        await stopped.wait()
        if pipe is not None:
            asyncio.get_running_loop().remove_reader(pipe)
        else:
            say("stopping (once more: at once)")
    return Exit.OK
