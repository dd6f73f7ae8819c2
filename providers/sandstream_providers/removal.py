"""Removes the files of a box.

The box chose their names, modes and depth, so the system's own tools remove them: they follow no
links, and they can remove a tree that is deeper than an interpreter's stack.
"""

from __future__ import annotations

import os
from pathlib import Path

from sandstream_providers.interface import ProviderError
from sandstream_providers.processes import PATH, ChildFds, run_once

_REMOVE_S = 600.0


async def remove_tree(path: Path) -> None:
    """Remove a directory that no process of a box can write any more."""
    with ChildFds() as fds:
        if os.geteuid() != 0:
            # Directories without rights keep even their owner out. What fails here fails below.
            open_up = ["chmod", "-R", "u+rwx", "--", str(path)]
            await run_once(open_up, {"PATH": PATH}, fds, timeout_s=_REMOVE_S)
        argv = ["rm", "-rf", "--", str(path)]
        code, said = await run_once(argv, {"PATH": PATH}, fds, timeout_s=_REMOVE_S)
    if code != 0:
        raise ProviderError(f"cannot remove {path}: {said.strip()[-500:]}")
