"""Programs that end with the process that started them, even if it is killed."""

from __future__ import annotations

import shutil
import threading


def ends_with_us() -> list[str]:
    """A prefix for a command. The kernel ends the program with the thread that started it, so this
    only works in the main thread.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return []
    return [setpriv, "--pdeathsig", "KILL", "--"]
