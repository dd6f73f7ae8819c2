"""Any command of ours as users start it: ``python command.py actor harness --json``."""

from __future__ import annotations

import sys

from sandstream.cli.main import main

sys.exit(main(sys.argv[1:]))
