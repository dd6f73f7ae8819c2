"""``python -m vendors.e2b --home /tmp/vendor``: an E2B of one's own on a local port."""

from __future__ import annotations

from vendors.e2b.vendor import E2BVendor
from vendors.server import main

if __name__ == "__main__":
    main(E2BVendor)
