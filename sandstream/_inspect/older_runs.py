"""Runs that began before what a search of the log looks at: from this machine's store of traces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from sandstream_actors.tracing.store.path import installation_of, store_path
from sandstream_actors.tracing.store.queries import TraceReader, Which
from sandstream_bus.bus import Bus

from sandstream._inspect.run_filter import RunFilter
from sandstream._inspect.run_search import Older

_PAGE = 200
_MOST = 2000
"""How many runs of the store are compared with the log."""


@asynccontextmanager
async def older_runs(
    bus: Bus, home: Path, wanted: RunFilter, which: Which
) -> AsyncIterator[Older | None]:
    """Where older runs can be found; None if there is no store, or it cannot help.

    The store knows the agent and the status of a run, not what was said or its metadata.
    """
    if wanted.agent is None and wanted.status is None:
        yield None
        return
    reader = await TraceReader.open_to_read(store_path(home, await installation_of(bus)))
    if reader is None:
        yield None
        return

    async def older(before: datetime | None) -> AsyncIterator[list[str]]:
        last = None if before is None else (_ns(before), "")
        for _ in range(_MOST // _PAGE):
            found = await reader.runs(
                limit=_PAGE,
                before=last,
                status=wanted.status,
                any_agent=wanted.agent,
                since_ns=None if wanted.since is None else _ns(wanted.since),
                which="top_level" if which == "top_level" else "all",
            )
            if not found:
                return
            yield [it.run for it in found]
            last = (found[-1].started_ns, found[-1].run)

    try:
        yield older
    finally:
        await reader.close()


def _ns(time: datetime) -> int:
    return int(time.timestamp() * 1e9)
