"""The process's environment, as providers read it.

The bus has such a module for the other packages, but providers may not import the bus. The agent in
the box runs alone there, and reads its own environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping


def variables(given: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """The variables that were given, else those of this process."""
    return os.environ if given is None else given
