"""New ids."""

from __future__ import annotations

import secrets
import time

from sandstream_bus.subjects import RunId

PRIVATE_POOL = "p-"
"""How the pools begin that are served only by the process that called a run."""


def new_pool() -> str:
    """A pool of this process alone."""
    return f"{PRIVATE_POOL}{secrets.token_hex(8)}"


def new_run_id() -> RunId:
    """Random, and sorts by time."""
    return RunId(f"r{int(time.time() * 1000):011x}{secrets.token_hex(5)}")
