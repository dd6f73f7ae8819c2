"""``sandstream actor memory``: one replica of the memory actor, and the harness beside it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator

from sandstream_bus.wire.subjects import check_token

from sandstream._run.memory_host import RunningMemory, start_memory_actor
from sandstream._surface.connection import OpenBus
from sandstream.cli.services.launch import GRACE_S, chosen_provider, opened, ready_of, until_stopped
from sandstream.cli.session import run_async
from sandstream.models.defaults import DefaultModels


def serve_memories(arguments: argparse.Namespace) -> int:
    chosen_provider(arguments.provider)
    if arguments.node is not None:
        check_token(arguments.node, "the node")
    return run_async(_serve(arguments), debug=arguments.debug)


async def _serve(arguments: argparse.Namespace) -> int:
    provider, node = chosen_provider(arguments.provider), arguments.node or ""
    async with (
        opened("sandstream-memory") as bus,
        _working(bus, provider, node, arguments.concurrency),
    ):
        where = f"{provider}, {f'node {node}' if node else 'any node'}"
        return await until_stopped(
            arguments,
            ready_of(bus, memory={"consolidates": where}),
            title="memory actor is ready",
            hints=["look: sandstream memory; it needs `sandstream actor sandbox` somewhere"],
        )


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
