"""A room for ``git clone`` below the provider's home: git alone with its directory, and caged."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import AsyncIterator

from sandstream_providers.git.room import CloneRoom
from sandstream_providers.grants import first_closed
from sandstream_providers.interface import Limits
from sandstream_providers.local import cage
from sandstream_providers.local.machine import Machine
from sandstream_providers.local.records import BoxRecord, Layout
from sandstream_providers.processes import ChildFds
from sandstream_providers.removal import remove_tree

_PLACE = "/repository"


@contextlib.asynccontextmanager
async def clone_cage(
    machine: Machine, layout: Layout, record: BoxRecord
) -> AsyncIterator[CloneRoom]:
    """A directory that belongs to the user of the box, and the isolation that boxes have."""
    folder = layout.folder(record.spec.key) / f"git-{uuid.uuid4().hex}"
    folder.mkdir(mode=0o755)
    try:
        if record.uid is not None:
            os.chown(folder, record.uid, record.uid)
        if machine.bubblewrap is None:
            yield CloneRoom(folder=folder, place=str(folder))
            return

        def command(fds: ChildFds, source: str | None) -> list[str]:
            return _command(machine, record, room, fds, source)

        room = CloneRoom(folder=folder, place=_PLACE, is_caged=True, command=command)
        yield room
    finally:
        await remove_tree(folder)


def _command(
    machine: Machine, record: BoxRecord, room: CloneRoom, fds: ChildFds, source: str | None
) -> list[str]:
    assert machine.bubblewrap is not None
    fds.add_data(b"go\n")
    folder, mounts = room.folder, []
    if record.uid is not None:
        closed = first_closed(folder)
        if closed is not None:
            mounts.append((folder, closed))
            folder = closed
    limits = Limits(memory_mb=None)
    command = [
        *cage.as_user(record.uid),
        *cage.bubblewrap(
            machine.bubblewrap,
            fds,
            root=_PLACE,
            network=True,
            workspace=folder,
            limits=limits,
            read_only=[] if source is None else [source],
            seccomp=machine.seccomp,
            die_with_parent=True,
        ),
        "--",
        *cage.limits_prefix(limits, open_files=machine.open_files),
    ]
    return cage.launcher(command, mounts=mounts)
