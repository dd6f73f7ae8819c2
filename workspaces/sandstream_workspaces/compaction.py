"""Joining small packs.

Every checkpoint brings a pack of its own, so after many of them a snapshot's files lie in many
small packs, or in big ones of which little is still used. When there are too many, their contents
are joined to new ones: a restore stays a matter of a few dozen objects.
"""

from __future__ import annotations

from sandstream_bus.objects import Objects

from sandstream_workspaces.errors import WorkspaceDamaged
from sandstream_workspaces.format import Root, TreeEntry, file_entry
from sandstream_workspaces.freshness import Freshness
from sandstream_workspaces.packs import PACK_BYTES, Locations, PackWriter
from sandstream_workspaces.restore import fetch_pack
from sandstream_workspaces.trees import Trees, Written

SPARE_PACKS = 64
"""So many more packs than needed may there be."""
_LITTLE_BYTES = PACK_BYTES // 2


def has_too_many_packs(root: Root) -> bool:
    needed = root.size // PACK_BYTES + 1
    # at most three times as many are left by joining: it is never tried again in vain
    return len(root.packs()) > 4 * needed + SPARE_PACKS


async def compact(
    objects: Objects, freshness: Freshness, locations: Locations, trees: Trees, written: Written
) -> Written:
    """The same files in fewer packs. ``missing``: packs that could not be read."""
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
    """Little of the pack is used, and no part of a big file."""
    return (
        all(len(entry.parts) == 1 for entry in contents.values())
        and sum(entry.size for entry in contents.values()) < _LITTLE_BYTES
    )
