"""Tunes Python's garbage collector for thousands of concurrent runs.

With its default thresholds the collector scans all live objects again and again; with thousands of
runs that takes a third of the CPU. Runs create few cycles, so scanning less often costs only some
megabytes.
"""

from __future__ import annotations

import gc

_DEFAULT = (700, 10, 10)
_PATIENT = (50_000, 20, 100)
_MANY = 200
_FEW = 50


def tune_collector() -> None:
    """For a process that contains only actors."""
    gc.set_threshold(*_PATIENT)


class CollectorRelief:
    """For a caller's own process: changes the thresholds only while many runs are active, and only
    if the program has not changed them itself.
    """

    def __init__(self) -> None:
        self._is_on = False

    def follow(self, runs: int) -> None:
        """Adjust to the current number of active runs."""
        if not self._is_on and runs >= _MANY and gc.get_threshold() == _DEFAULT:
            gc.set_threshold(*_PATIENT)
            self._is_on = True
        elif self._is_on and runs <= _FEW:
            self._is_on = False
            if gc.get_threshold() == _PATIENT:
                gc.set_threshold(*_DEFAULT)
