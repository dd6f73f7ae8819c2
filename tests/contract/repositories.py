"""A small repository to fetch from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def make_repository(path: Path) -> str:
    """Two commits, the first with the tag ``v1``; the digest of the second."""
    path.mkdir()
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(path)}
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "t", f"GIT_{who}_EMAIL": "t@example.org"}

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(path), *arguments], check=True, capture_output=True, env=env
        )
        return done.stdout.decode().strip()

    git("init", "--quiet", "-b", "main")
    (path / "sub").mkdir()
    for text in ("one", "two"):
        (path / "file").write_text(text)
        (path / "sub" / "inner").write_text(text)
        git("add", ".")
        git("commit", "--quiet", "-m", text)
        if text == "one":
            git("tag", "v1")
    return git("rev-parse", "HEAD")


def subjects(place: Path, archive: bytes, name: str) -> list[str]:
    """The history of a repository in a tar file. It is unpacked here, as a box may have no git."""
    unpack = ["tar", "-C", str(place), "--no-same-owner", "-xf", "-"]
    subprocess.run(unpack, input=archive, check=True)
    log = ["git", "-C", str(place / name), "log", "--format=%s"]
    done = subprocess.run(log, check=True, capture_output=True)
    return done.stdout.decode().splitlines()
