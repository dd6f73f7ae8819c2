"""New ids."""

from __future__ import annotations

import secrets
import time

from sandstream_bus.wire.subjects import RunId

PRIVATE_POOL = "p-"
"""The prefix of pools that are served only by the process that started the run."""


def new_pool() -> str:
    """The name of a pool for this process alone."""
    return f"{PRIVATE_POOL}{secrets.token_hex(8)}"


def new_run_id() -> RunId:
    """A random id that sorts by time."""
    return RunId(f"r{int(time.time() * 1000):011x}{secrets.token_hex(5)}")
