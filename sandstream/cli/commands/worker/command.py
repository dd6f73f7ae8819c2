"""``sandstream worker``: serve the agents of one file."""

from __future__ import annotations

import argparse
import shlex

from sandstream_bus.wire.subjects import check_token

from sandstream.cli.commands.worker.apps import App, load_app
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.services.launch import announce, opened, ready_of, worker
from sandstream.cli.session import run_async, say, stop_signals


def main(arguments: argparse.Namespace) -> int:
    if arguments.pool == "":
        raise CliError(Exit.USAGE, "--pool must not be empty")
    check_token(arguments.harness_pool, "the harness pool")
    app = load_app(arguments.app, debug=arguments.debug)
    return run_async(_serve(arguments, app), debug=arguments.debug)


async def _serve(arguments: argparse.Namespace, app: App) -> int:
    pool = arguments.pool or app.pool
    async with (
        opened("sandstream-worker") as bus,
        worker(
            bus,
            app,
            pool=pool,
            harness_pool=arguments.harness_pool,
            concurrency=arguments.concurrency,
        ) as replica,
    ):
        names = sorted(app.agents)
        stopped = stop_signals()
        announce(
            ready_of(bus, pool=replica.pool, agents=names),
            as_json=arguments.json,
            title=f"worker of {app.path} is ready",
            hints=[f'try: sandstream submit {shlex.quote(names[0])} "hello" --wait'],
        )
        await stopped.wait()
        say("stopping (press Ctrl-C again to stop at once)")
    return Exit.OK
