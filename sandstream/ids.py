"""New ids."""

from __future__ import annotations

import secrets
import time

from sandstream_bus.subjects import RunId


def new_run_id() -> RunId:
    """Random, and sorts by time."""
    return RunId(f"r{int(time.time() * 1000):011x}{secrets.token_hex(5)}")
