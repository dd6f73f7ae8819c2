"""Repositories: fetched into a box by branch, tag and commit, and what cannot be fetched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from contract.stage import Stage, place_in
from sandstream_providers.interface import BoxGone, GitFailed


def make_repository(path: Path) -> str:
    """Two commits, the first with the tag ``v1``; the digest of the second."""
    path.mkdir()
    identity = {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(path), **identity}

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


def test_branch_tag_and_commit(stage: Stage, tmp_path: Path) -> None:
    commit = make_repository(tmp_path / "repo")
    url = (tmp_path / "repo").as_uri()

    async def story() -> None:
        place = await place_in(await stage.box())
        for ref, text in (("main", "two"), ("v1", "one"), (commit, "two")):
            await stage.provider.fetch_git(place.box, url, ref, place.at(f"to/{ref}"))
            assert await place.said(f"cat to/{ref}/file to/{ref}/sub/inner") == text * 2
            assert await place.said(f"test -d to/{ref}/.git && test -w to/{ref}/file; echo $?") == (
                "0\n"
            )

    stage.run(story())


def test_what_cannot_be_fetched(stage: Stage, tmp_path: Path) -> None:
    make_repository(tmp_path / "repo")

    async def story() -> None:
        place = await place_in(await stage.box())
        for url, ref, reason in (
            ((tmp_path / "none").as_uri(), "main", "clone"),
            ((tmp_path / "repo").as_uri(), "no-such-ref", "ref"),
            ((tmp_path / "repo").as_uri(), "--upload-pack=touch /tmp/x", "ref"),
        ):
            with pytest.raises(GitFailed) as caught:
                await stage.provider.fetch_git(place.box, url, ref, place.at("target"))
            assert caught.value.data["reason"] == reason
            assert await place.said("find . -type f") == ""

    stage.run(story())


def test_a_box_that_is_gone(stage: Stage, tmp_path: Path) -> None:
    make_repository(tmp_path / "repo")

    async def story() -> None:
        async with stage.fresh() as box:
            await stage.provider.delete(box.key)
            with pytest.raises(BoxGone):
                url = (tmp_path / "repo").as_uri()
                await stage.provider.fetch_git(box, url, "main", f"{box.root}/x")

    stage.run(story())
