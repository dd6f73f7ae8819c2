"""``python -m sandstream.cli``: the same as ``sandstream``; how replicas are started."""

import sys

from sandstream.cli.main import main

sys.exit(main())
