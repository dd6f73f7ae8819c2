"""``sandstream actor memory``: one replica of the memory actor, and the harness beside it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator

from sandstream.cli.exits import CliError, Exit
from sandstream.cli.services import GRACE_S, announce, opened, ready_of, stopped_with_parent
from sandstream.cli.session import run_async, say, stop_signals
from sandstream.connect import OpenBus
from sandstream.memory_host import RunningMemory, start_memory_actor
from sandstream.models.defaults import DefaultModels
from sandstream.sandbox_host import PROVIDERS


def serve_memories(arguments: argparse.Namespace) -> int:
    if arguments.provider not in (None, *PROVIDERS):
        known = ", ".join(PROVIDERS)
        raise CliError(
            Exit.USAGE, f"there is no sandbox provider {arguments.provider!r}; known: {known}"
        )
    return run_async(_serve(arguments), debug=arguments.debug)


async def _serve(arguments: argparse.Namespace) -> int:
    pipe: int | None = arguments.parent_pipe
    provider, node = arguments.provider or "local", arguments.node or ""
    async with (
        opened("sandstream-memory") as bus,
        _working(bus, provider, node, arguments.concurrency),
    ):
        stopped = stop_signals()
        if pipe is None:
            where = f"{provider}, {f'node {node}' if node else 'any node'}"
            announce(
                ready_of(bus, memory={"consolidates": where}),
                as_json=arguments.json,
                title="memory actor is ready",
                hints=["look: sandstream memory; it needs `sandstream actor sandbox` somewhere"],
            )
        with stopped_with_parent(pipe, stopped):
            await stopped.wait()
        if pipe is None:
            say("stopping (once more: at once)")
    return Exit.OK


@contextlib.asynccontextmanager
async def _working(
    bus: OpenBus, provider: str, node: str, concurrency: int
) -> AsyncIterator[RunningMemory]:
    async def place() -> tuple[str, str]:
        return provider, node

    models = DefaultModels()
    try:
        replica = await start_memory_actor(bus.bus, models, place, concurrency=concurrency)
        try:
            yield replica
        finally:
            await replica.stop(GRACE_S)
    finally:
        await models.aclose()
