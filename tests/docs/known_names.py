"""Stands in for `make` and `pip` in the pages: checks that what they are asked for exists."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main(words: list[str]) -> int:
    command, *arguments = words
    if command == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        unknown = [target for target in arguments if target not in targets]
    else:
        declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
        project = declared["project"]
        known = {project["name"]} | {
            f"{project['name']}[{extra}]" for extra in project["optional-dependencies"]
        }
        known |= {re.split(r"[^\w-]", name)[0] for name in declared["dependency-groups"]["dev"]}
        unknown = [word for word in arguments[1:] if word not in known]
    if unknown:
        print(f"{command}: the project knows no {', '.join(unknown)}", file=sys.stderr)
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
