"""Directories of files that tests make, and what they hold, for comparing."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Found(NamedTuple):
    kind: str
    mode: int
    content: bytes


def holds(root: Path) -> dict[bytes, Found]:
    """Everything below a directory."""
    found: dict[bytes, Found] = {}
    top = os.fsencode(root)
    for folder, folders, names in os.walk(top):
        for name in [*folders, *names]:
            path = os.path.join(folder, name)  # noqa: PTH118
            info = os.lstat(path)
            mode = stat.S_IMODE(info.st_mode)
            key = os.path.relpath(path, top)
            if stat.S_ISLNK(info.st_mode):
                found[key] = Found("link", 0, os.readlink(path))  # noqa: PTH115
            elif stat.S_ISDIR(info.st_mode):
                found[key] = Found("dir", mode, b"")
            else:
                found[key] = Found("file", mode, Path(os.fsdecode(path)).read_bytes())
    return found


def fill(root: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def fill_with_everything(root: Path) -> None:
    """One of each kind that a snapshot keeps."""
    fill(root, {"a.txt": b"a", "src/main.py": b"print(1)\n", "empty": b"", "src/deep/er/x": b"x"})
    (root / "run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "secret").write_bytes(b"s")
    (root / "secret").chmod(0o600)
    (root / "empty_dir" / "nested").mkdir(parents=True)
    (root / "private").mkdir(mode=0o700)
    fill(root, {"closed/inner/file": b"c", ".git/pack": os.urandom(5 * 1024 * 1024)})
    (root / ".git" / "pack").chmod(0o444)
    (root / "closed" / "inner").chmod(0o500)
    (root / "closed").chmod(0o555)
    (root / "to_a").symlink_to("a.txt")
    (root / "src" / "up").symlink_to("../a.txt")
    (root / "dangling").symlink_to("nowhere/at/all")
    (root / "absolute").symlink_to(root / "a.txt")
    odd = os.fsencode(root) + b"/odd-\xff\xfe \n name"
    Path(os.fsdecode(odd)).write_bytes(b"odd")
    Path(os.fsdecode(odd + b"-link")).symlink_to(os.fsdecode(b"to-\xff"))


def random_change(root: Path, dice: random.Random) -> None:
    """One change of any kind to a workspace that may have any shape."""
    names = ["a", "b", "c", "d-e", "f.txt", "é"]
    path = root.joinpath(*(dice.choice(names) for _ in range(dice.randint(1, 3))))
    for parent in reversed(path.relative_to(root).parents):
        above = root / parent
        if above.is_symlink() or above.is_file():
            above.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove(path)
    what = dice.choice(["file", "file", "file", "dir", "link", "nothing", "move"])
    if what == "file":
        path.write_bytes(dice.randbytes(dice.choice([0, 1, 100, 5000])))
        path.chmod(dice.choice([0o644, 0o755, 0o600]))
    elif what == "dir":
        path.mkdir()
    elif what == "link":
        path.symlink_to(dice.choice(names))
    elif what == "move":
        others = [it for it in root.iterdir() if it not in (path, *path.parents)]
        if others:
            dice.choice(sorted(others)).rename(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for below in path.iterdir():
            _remove(below)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
