"""Images that the engine gets from a registry: what callers are told, and what may fail."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from providers.docker.docker_boxes import busybox_file, docker_provider, is_there, new_spec
from sandstream_providers.docker.errors import ImageUnusable
from sandstream_providers.progress import listening
from support.engines import engine
from support.engines.image_registry import ImageRegistry

SIZE = 8 << 20
"""Engines say something for each half megabyte at most."""


@pytest.fixture(scope="module")
def registry() -> Iterator[ImageRegistry]:
    files = {"bin/sh": busybox_file(), "data": os.urandom(SIZE)}
    with ImageRegistry(files) as made:
        yield made


@pytest.mark.timeout(120)
def test_callers_are_told_how_far_a_pull_is(tmp_path: Path, registry: ImageRegistry) -> None:
    told: list[str] = []
    image = f"{registry.place}/box:whole"

    def hear(text: str) -> None:
        told.append(text)
        if " of " in text:
            registry.go_on.set()

    async def story() -> None:
        async with docker_provider(tmp_path) as provider:
            spec = new_spec(image)
            with listening(hear):
                await provider.create(spec)
            assert is_there(spec.key)
            before = len(told)
            with listening(hear):
                await provider.create(new_spec(image))
            assert len(told) == before, "an image that is here is not asked for again"

    try:
        asyncio.run(story())
    finally:
        client = docker.APIClient(base_url=engine.ensure())
        client.remove_image(image, force=True)
        client.close()
    assert told[0] == f"pulling the image {image}"
    assert told[1].startswith(f"pulling the image {image}: ") and told[1].endswith(" of 10 MB")
    assert len(told) <= 12, "not every line of the engine"


@pytest.mark.parametrize(
    ("name", "reason", "todo"),
    [
        ("box:none", "missing", "check its name and tag"),
        ("box:foreign", "platform", "choose an image for this machine"),
        ("private/box:whole", "auth", "docker login"),
    ],
)
def test_an_image_that_cannot_be_pulled(
    tmp_path: Path, registry: ImageRegistry, name: str, reason: str, todo: str
) -> None:
    async def story() -> None:
        async with docker_provider(tmp_path) as provider:
            spec = new_spec(f"{registry.place}/{name}")
            with pytest.raises(ImageUnusable) as caught:
                await provider.create(spec)
            assert caught.value.data["reason"] == reason, caught.value
            assert todo in str(caught.value)
            assert not is_there(spec.key)

    asyncio.run(story())
