"""Named places where a test may kill the process, to prove that a crash there costs nothing.

``SANDSTREAM_CRASH_AT=harness.committed:2`` kills (SIGKILL) the process when it reaches that point
for the second time. Without the variable a crash point is one comparison. The variable is read at
import, the only exception to "settings are read at the edge", so that no production path has to
carry it.
"""

from __future__ import annotations

import os
import signal

_armed, _, _count = os.environ.get("SANDSTREAM_CRASH_AT", "").partition(":")
_left = int(_count or "1")


def crashpoint(name: str) -> None:
    """Die here, if a test asked for it."""
    global _left
    if name != _armed:
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
