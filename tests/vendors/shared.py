"""One server per vendor for all tests of a process that need no faults of their own."""

from __future__ import annotations

import atexit
import functools
import tempfile
from pathlib import Path
from typing import Any

from vendors.process import VendorServer

_SETTINGS: dict[str, dict[str, Any]] = {
    "daytona": {
        "extra_dirs": ["/workspace", "/srv/my work", "/srv/project"]
    },  # its boxes have no sudo
    "e2b": {},
}


@functools.cache
def shared(vendor: str) -> VendorServer:
    """Started on first use, and ended with this process."""
    folder = tempfile.TemporaryDirectory(prefix=f"{vendor}-boxes-")
    atexit.register(folder.cleanup)
    server = VendorServer.start(vendor, home=Path(folder.name), **_SETTINGS[vendor])
    atexit.register(server.stop)  # before its folder is removed
    return server


def box_of(server: VendorServer, key: str) -> str:
    """The vendor's id of the box with this key."""
    (found,) = [box.id for box in server.boxes() if key in box.metadata.values()]
    return found
