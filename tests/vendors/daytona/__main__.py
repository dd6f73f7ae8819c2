"""``python -m vendors.daytona --home FOLDER``"""

from vendors.daytona.vendor import Daytona
from vendors.server import main

if __name__ == "__main__":
    main(Daytona)
