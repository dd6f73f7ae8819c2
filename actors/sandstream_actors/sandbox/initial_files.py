"""The files of a new box: from the last checkpoint, or from the plan of its sandbox."""

from __future__ import annotations

from sandstream_bus.crashpoints import crashpoint
from sandstream_providers.interface import Box, Provider
from sandstream_workspaces.store import WorkspaceStore

from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.sandbox.plans import apply_plan
from sandstream_actors.sandbox.sources import CheckedPlan


async def fill(
    record: SandboxRecord,
    box: Box,
    checked: CheckedPlan,
    provider: Provider,
    store: WorkspaceStore,
    *,
    op: str,
) -> None:
    """Fill the box. A repetition after a crash empties it first. The operation ids begin with
    ``op``.
    """
    if record.base:
        await store.restore(box, record.base, op=f"{op}-restore", keep=[])
        crashpoint("sandbox.after_restore")
    else:
        await box.clear(f"{op}-clear")
    await apply_plan(
        box,
        checked,
        provider=provider,
        store=store,
        op=op,
        only_ephemeral=bool(record.base),
    )
