"""Verbose logging to stdout."""

from __future__ import annotations

import logging
import sys

_PARTS = ("", "_bus", "_actors", "_providers", "_workspaces", "_memory")
_NAME = "sandstream-verbose"


def enable_verbose_stdout_logging() -> None:
    """Log everything in this process to stdout. A second call has no effect."""
    for part in _PARTS:
        logger = logging.getLogger(f"sandstream{part}")
        logger.setLevel(logging.DEBUG)
        if any(handler.get_name() == _NAME for handler in logger.handlers):
            continue
        handler = logging.StreamHandler(sys.stdout)
        handler.set_name(_NAME)
        logger.addHandler(handler)
