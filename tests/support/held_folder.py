"""A directory whose file system does not answer for a while: a process that looks at it cannot be
stopped, as with a network file system whose server is gone.

The file system is a FUSE one of this process. It has a root and nothing else.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_LIBC = ctypes.CDLL(None, use_errno=True)
_DETACH = 2
_IN = struct.Struct("=IIQQIIIi")
"""Of a request: size, kind, number, node, user, group, process, padding."""
_GETATTR, _INIT = 3, 26
_SILENT = (2, 36, 42)
"""These kinds have no answer: forget, interrupt, forget many."""
_VERSION = struct.pack("=IIII HHII HHIIIIII", 7, 31, 65536, 0, 12, 9, 65536, 1, *[0] * 8)
_ROOT = struct.pack("=QII QQQQQQ IIIIIIIIII", *[0] * 3, 1, *[0] * 8, 0o40755, 2, 0, 0, 0, 4096, 0)
"""A directory with the number 1, which is to be asked for again each time."""
_UNKNOWN = -38
_MOST = 128 * 1024


class HeldFolder:
    """Needs root and /dev/fuse."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked = threading.Event()
        """A process waits for an answer."""
        self._holds = False
        self._waiting: list[int] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.path.mkdir()
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._device},rootmode=40755,user_id=0,group_id=0,allow_other"
        if _LIBC.mount(b"held", os.fsencode(self.path), b"fuse", 0, options.encode()) != 0:
            os.close(self._device)
            raise OSError(ctypes.get_errno(), "a FUSE file system cannot be mounted")
        self._server = threading.Thread(target=self._serve, daemon=True)
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
        _LIBC.umount2(os.fsencode(self.path), _DETACH)
        self._server.join()
        os.close(self._device)

    def hold(self) -> None:
        """From now on nothing is answered."""
        with self._lock:
            self._holds = True

    def release(self) -> None:
        """Answer all that was asked."""
        with self._lock:
            self._holds = False
            while self._waiting:
                self._answer(self._waiting.pop(), _ROOT)

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, _MOST)
            except OSError:
                return  # it was unmounted
            _, kind, number, *_ = _IN.unpack_from(request)
            with self._lock:
                self._serve_one(kind, number)

    def _serve_one(self, kind: int, number: int) -> None:
        if kind in _SILENT:
            return
        if kind == _INIT:
            self._answer(number, _VERSION)
        elif kind != _GETATTR:
            self._answer(number, b"", _UNKNOWN)
        elif self._holds:
            self._waiting.append(number)
            self.asked.set()
        else:
            self._answer(number, _ROOT)

    def _answer(self, number: int, data: bytes, error: int = 0) -> None:
        head = struct.pack("=IiQ", 16 + len(data), error, number)
        os.write(self._device, head + data)
