"""Join small packs.

Every checkpoint adds its own pack. After many checkpoints, the files of a snapshot are spread over
many small packs, or over big packs of which little is still used. When there are too many, their
contents are joined into new packs, so that a restore only needs a few dozen objects.
"""

from __future__ import annotations

from sandstream_bus.nats.objects import Objects

from sandstream_workspaces.errors import WorkspaceDamaged
from sandstream_workspaces.format import Root, TreeEntry, file_entry
from sandstream_workspaces.freshness import Freshness
from sandstream_workspaces.packs import PACK_BYTES, Locations, PackWriter
from sandstream_workspaces.restore import fetch_pack
from sandstream_workspaces.trees import Trees, Written

SPARE_PACKS = 64
"""How many packs more than needed are tolerated."""
_LITTLE_BYTES = PACK_BYTES // 2


def has_too_many_packs(root: Root) -> bool:
    needed = root.size // PACK_BYTES + 1
    # joining leaves at most three times as many, so it is never repeated in vain
    return len(root.packs()) > 4 * needed + SPARE_PACKS


async def compact(
    objects: Objects, freshness: Freshness, locations: Locations, trees: Trees, written: Written
) -> Written:
    """Store the same files in fewer packs. ``missing`` of the result: packs that are unreadable."""
    entries = await trees.all_entries(written.tree)
    used: dict[bytes, dict[bytes, TreeEntry]] = {}
    for entry in entries:
        for part in entry.parts:
            used.setdefault(part.pack, {})[entry.digest] = entry
    little = {pack: contents for pack, contents in used.items() if _is_little(contents)}
    moved: dict[bytes, TreeEntry] = {}
    async with PackWriter(objects, freshness, Locations()) as packs:
        for pack, contents in little.items():
            try:
                data = await fetch_pack(objects, written.tree, pack)
            except WorkspaceDamaged as error:
                return Written("", written.root, written.new_bytes, {error.damaged})
            for digest, entry in contents.items():
                offset = entry.parts[0].offset
                await packs.add(digest, data[offset : offset + entry.size])
                moved[digest] = entry
        await packs.finish()
        compacted = [
            file_entry(entry.path, entry.mode, entry.size, entry.digest, packs.parts(entry.digest))
            if entry.digest in moved
            else entry
            for entry in entries
        ]
        new_bytes = packs.new_bytes
    again = await trees.build(compacted)
    locations.learn_entries(compacted)
    return Written(
        again.tree, again.root, written.new_bytes + new_bytes + again.new_bytes, again.missing
    )


def _is_little(contents: dict[bytes, TreeEntry]) -> bool:
    """Whether little of the pack is used and none of it is part of a big file."""
    return (
        all(len(entry.parts) == 1 for entry in contents.values())
        and sum(entry.size for entry in contents.values()) < _LITTLE_BYTES
    )
