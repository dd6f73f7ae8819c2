"""An engine behind TLS, as on another machine: certificates of both sides count."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from providers.docker.docker_boxes import docker_provider, new_spec
from providers.local.local_boxes import said, sh
from sandstream_providers.docker.engine import Engine
from sandstream_providers.docker.facts import ask
from sandstream_providers.interface import ProviderUnavailable
from support.engines.guarded_engine import GuardedEngine
from support.engines.own_engine import OwnEngine


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``ca.pem``, ``cert.pem`` and ``key.pem`` for both sides, as Docker names them."""
    place = tmp_path_factory.mktemp("certificates")

    def openssl(*argv: str) -> None:
        subprocess.run(["openssl", *argv], cwd=place, check=True, capture_output=True)

    new_key = ("-newkey", "rsa:2048", "-nodes")
    openssl("req", "-x509", *new_key, "-keyout", "ca-key.pem", "-out", "ca.pem", "-subj", "/CN=ca")
    openssl("req", *new_key, "-keyout", "key.pem", "-out", "both.csr", "-subj", "/CN=localhost")
    (place / "more").write_text("subjectAltName=IP:127.0.0.1\n")
    signing = ("-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-extfile", "more")
    openssl("x509", "-req", "-in", "both.csr", *signing, "-out", "cert.pem")
    return place


@contextlib.contextmanager
def _known(certificates: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_TLS_VERIFY", "1")
        patch.setenv("DOCKER_CERT_PATH", str(certificates))
        yield


@pytest.mark.timeout(180)
def test_boxes_of_a_remote_engine(tmp_path: Path, certificates: Path) -> None:
    async def story(address: str) -> None:
        async with docker_provider(tmp_path / "home", url=address) as provider:
            spec = new_spec(network="none")
            box = await provider.create(spec)
            assert await said(box, "echo here > file; cat file") == "here\n"
            assert (await sh(box, "head -c 3000000 /dev/zero")).stdout == bytes(3_000_000)
            await provider.pause(spec.key)
            await provider.resume(spec.key)
            assert await said(box, "cat file") == "here\n"

    async def refused(address: str) -> str:
        with pytest.raises(ProviderUnavailable) as caught:
            await ask(Engine(address, call_s=5))
        return str(caught.value)

    async def main() -> None:
        async with (
            OwnEngine(live_restore=False) as own,
            GuardedEngine(own.url, certificates) as guarded,
        ):
            with _known(certificates):
                await story(guarded.url)
            assert "DOCKER_TLS_VERIFY=1" in await refused(guarded.url)
            with _known(stranger):
                assert "DOCKER_CERT_PATH" in await refused(guarded.url)

    stranger = tmp_path / "stranger"
    stranger.mkdir()
    for file in ("cert.pem", "key.pem"):
        (stranger / file).symlink_to(certificates / file)
    (stranger / "ca.pem").write_text((certificates / "cert.pem").read_text())
    asyncio.run(main())
