"""One tracing actor as users start it: ``python tracing_actor.py [<flags of the command>]``."""

from __future__ import annotations

import sys

from sandstream.cli.main import main

sys.exit(main(["actor", "tracing", "--json", *sys.argv[1:]]))
