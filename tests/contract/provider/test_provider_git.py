"""Repositories: fetched into a box by branch, tag and commit, and what cannot be fetched."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract.repositories import make_repository
from contract.stage import Stage, place_in
from sandstream_providers.interface import BoxGone, GitFailed


def test_branch_tag_and_commit(stage: Stage, public_dir: Path) -> None:
    commit = make_repository(public_dir / "repo")
    url = (public_dir / "repo").as_uri()

    async def story() -> None:
        place = await place_in(await stage.box())
        for ref, text in (("main", "two"), ("v1", "one"), (commit, "two")):
            await stage.provider.fetch_git(place.box, url, ref, place.at(f"to/{ref}"))
            assert await place.said(f"cat to/{ref}/file to/{ref}/sub/inner") == text * 2
            assert await place.said(f"test -d to/{ref}/.git && test -w to/{ref}/file; echo $?") == (
                "0\n"
            )

    stage.run(story())


def test_what_cannot_be_fetched(stage: Stage, public_dir: Path) -> None:
    make_repository(public_dir / "repo")

    async def story() -> None:
        place = await place_in(await stage.box())
        for url, ref, reason in (
            ((public_dir / "none").as_uri(), "main", "clone"),
            ((public_dir / "repo").as_uri(), "no-such-ref", "ref"),
            ((public_dir / "repo").as_uri(), "--upload-pack=touch /tmp/x", "ref"),
        ):
            with pytest.raises(GitFailed) as caught:
                await stage.provider.fetch_git(place.box, url, ref, place.at("target"))
            assert caught.value.data["reason"] == reason
            assert await place.said("find . -type f") == ""

    stage.run(story())


def test_a_box_that_is_gone(stage: Stage, public_dir: Path) -> None:
    make_repository(public_dir / "repo")

    async def story() -> None:
        async with stage.fresh() as box:
            await stage.provider.delete(box.key)
            with pytest.raises(BoxGone):
                url = (public_dir / "repo").as_uri()
                await stage.provider.fetch_git(box, url, "main", f"{box.root}/x")

    stage.run(story())
