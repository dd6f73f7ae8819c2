"""Going down and up a tree of directories of any depth with few descriptors.

Only the innermost directories are kept open. On the way up, one that was closed is found again by
``..``, and taken only if it is the same as before.
"""

from __future__ import annotations

import os
import stat as modes

from sandstream_providers.box.agent import wire
from sandstream_providers.box.agent.files.single_files import FOLDER_FLAGS
from sandstream_providers.box.agent.refused import Refused

KEPT_OPEN = 32
MAX_DEPTH = 5000
MAX_PATH_BYTES = 64 * 1024
"""Deeper or longer trees are refused: the list of all paths would fill the memory."""
SHOWN_BYTES = 100


class Level:
    """A directory on the way down."""

    __slots__ = ("closed_mode", "fd", "identity", "name", "names", "prefix")

    def __init__(self, fd: int, name: bytes, prefix: bytes, closed_mode: int | None) -> None:
        self.fd = fd
        self.name = name
        self.prefix = prefix
        """The path of its entries, up to their names."""
        self.closed_mode = closed_mode
        """The mode to give back to it: its owner was kept out."""
        facts = os.fstat(fd)
        self.identity = (facts.st_dev, facts.st_ino)
        self.names = sorted(os.listdir(fd), reverse=True)


class Descent:
    """Where a walk is. ``close`` it, wherever that is."""

    def __init__(self, root: bytes) -> None:
        self._levels = [_opened(None, root, b"", None)]

    @property
    def here(self) -> Level | None:
        """The innermost directory; None: all have been left."""
        return self._levels[-1] if self._levels else None

    def enter(self, name: bytes, mode: int) -> None:
        """A directory in this one, with this mode."""
        outer = self._levels[-1]
        prefix = outer.prefix + name + b"/"
        if len(self._levels) > MAX_DEPTH or len(prefix) > MAX_PATH_BYTES:
            raise Refused(
                "WrongKind",
                f"directories are nested too deep to be saved: more than {MAX_DEPTH} levels or a "
                f"path of more than {MAX_PATH_BYTES} bytes, below {_shown(prefix)}",
            )
        # Its owner may always look into it; a mode that says otherwise is given back afterwards.
        mode = modes.S_IMODE(mode)
        closed = mode & 0o500 != 0o500 and os.geteuid() != 0
        if closed:
            os.chmod(name, mode | 0o500, dir_fd=outer.fd)
        try:
            self._levels.append(_opened(outer.fd, name, prefix, mode if closed else None))
        except OSError:
            if closed:
                os.chmod(name, mode, dir_fd=outer.fd)
            raise
        if len(self._levels) > KEPT_OPEN:
            far = self._levels[-1 - KEPT_OPEN]
            os.close(far.fd)
            far.fd = -1

    def leave(self) -> None:
        """Up again. What was moved away meanwhile is not looked at any more."""
        inner = self._levels.pop()
        try:
            if not self._levels:
                return
            outer = self._levels[-1]
            if outer.fd < 0:
                self._find_again(outer, inner.fd)
            if inner.closed_mode is not None and outer.fd >= 0:
                os.chmod(inner.name, inner.closed_mode, dir_fd=outer.fd)
        except FileNotFoundError:
            return  # removed meanwhile
        finally:
            if inner.fd >= 0:
                os.close(inner.fd)

    def close(self) -> None:
        while self._levels:
            self.leave()

    def _find_again(self, outer: Level, inner: int) -> None:
        if inner >= 0:
            fd = os.open(b"..", FOLDER_FLAGS, dir_fd=inner)
            facts = os.fstat(fd)
            if (facts.st_dev, facts.st_ino) == outer.identity:
                outer.fd = fd
                return
            os.close(fd)
        outer.names.clear()


def _opened(folder: int | None, name: bytes, prefix: bytes, closed_mode: int | None) -> Level:
    fd = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    try:
        return Level(fd, name, prefix, closed_mode)
    except BaseException:
        os.close(fd)
        raise


def _shown(path: bytes) -> str:
    return wire.to_text(path[:SHOWN_BYTES]) + ("…" if len(path) > SHOWN_BYTES else "")
