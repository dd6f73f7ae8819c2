"""Every way to authenticate that the settings offer, from the environment to a stored message."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nkeys
import pytest
from sandstream_bus.errors import BusUnavailable
from support.nats_server import NatsServer

from sandstream._surface.connection import open_bus
from sandstream.settings import Settings


def connects(environ: dict[str, str], tmp_path: Path) -> bool:
    """Does this environment reach JetStream?"""

    async def main() -> bool:
        settings = Settings.from_env({"SANDSTREAM_HOME": str(tmp_path / "unused"), **environ})
        async with await open_bus(settings, create="if_empty") as bus:
            names: list[str] = await bus.agents.names()
            return names == []

    return asyncio.run(main())


def key_pair(kind: int) -> tuple[str, Any, str]:
    seed = nkeys.encode_seed(os.urandom(32), kind)
    pair = nkeys.from_seed(bytearray(seed))
    return seed.decode(), pair, pair.public_key.decode()


def with_token(directory: Path) -> tuple[str, dict[str, str], dict[str, str]]:
    return "authorization { token: sesame }", {"NATS_TOKEN": "sesame"}, {"NATS_TOKEN": "wrong"}


def with_password(directory: Path) -> tuple[str, dict[str, str], dict[str, str]]:
    good = {"NATS_USER": "u", "NATS_PASSWORD": "p"}
    return "authorization { user: u, password: p }", good, good | {"NATS_PASSWORD": "wrong"}


def with_nkey(directory: Path) -> tuple[str, dict[str, str], dict[str, str]]:
    seed, _, public = key_pair(nkeys.PREFIX_BYTE_USER)
    other, _, _ = key_pair(nkeys.PREFIX_BYTE_USER)
    (directory / "good.nk").write_text(seed)
    (directory / "bad.nk").write_text(other)
    config = f"authorization {{ users: [ {{ nkey: {public} }} ] }}"
    return (
        config,
        {"NATS_NKEY": str(directory / "good.nk")},
        {"NATS_NKEY": str(directory / "bad.nk")},
    )


def with_creds(directory: Path) -> tuple[str, dict[str, str], dict[str, str]]:
    """A decentralised set-up: operator, account and user tokens made here."""
    _, operator, operator_id = key_pair(nkeys.PREFIX_BYTE_OPERATOR)
    _, account, account_id = key_pair(nkeys.PREFIX_BYTE_ACCOUNT)
    _, _, system_id = key_pair(nkeys.PREFIX_BYTE_ACCOUNT)
    unlimited = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    limits = {"subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1}
    limits |= {"payload": -1, "wildcards": True}

    def account_token(name: str, public: str, storage: dict[str, int]) -> str:
        nats = {"limits": {**limits, **storage}, "type": "account", "version": 2}
        return token({"name": name, "sub": public, "nats": nats}, operator)

    operator_claims = {
        "name": "O",
        "sub": operator_id,
        "nats": {"type": "operator", "version": 2},
    }

    def user_file(name: str, signer: Any) -> str:
        seed, _, public = key_pair(nkeys.PREFIX_BYTE_USER)
        claims = {
            "name": name,
            "sub": public,
            "nats": {"subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2},
        }
        file = directory / f"{name}.creds"
        file.write_text(
            "-----BEGIN NATS USER JWT-----\n"
            f"{token(claims, signer)}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
        return str(file)

    _, stranger, _ = key_pair(nkeys.PREFIX_BYTE_ACCOUNT)
    config = (
        f"operator: {token(operator_claims, operator)}\nresolver: MEMORY\n"
        f"system_account: {system_id}\n"
        f"resolver_preload: {{ {account_id}: {account_token('A', account_id, unlimited)}\n"
        f"{system_id}: {account_token('SYS', system_id, {})} }}"
    )
    return (
        config,
        {"NATS_CREDS": user_file("good", account)},
        {"NATS_CREDS": user_file("bad", stranger)},
    )


def token(claims: dict[str, Any], signer: Any) -> str:
    body = {**claims, "iat": int(time.time()), "iss": signer.public_key.decode()}
    digest = hashlib.sha256(json.dumps(body).encode()).digest()
    body["jti"] = base64.b32encode(digest).decode().rstrip("=")
    parts = [{"typ": "JWT", "alg": "ed25519-nkey"}, body]
    signed = ".".join(_base64(json.dumps(part).encode()) for part in parts)
    return f"{signed}.{_base64(signer.sign(signed.encode()))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def with_tls(directory: Path) -> tuple[str, dict[str, str], dict[str, str]]:
    """The server shows a certificate of our own authority, and wants one of us."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    (directory / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("ca", "other"):
        names = ("-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
        openssl(*new, "-x509", "-days", "2", *names)
    for name in ("server", "client"):
        openssl(*new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        sign = ("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key")
        more = ("-CAcreateserial", "-days", "2", "-extfile", "names", "-out", f"{name}.pem")
        openssl(*sign, *more)
    files = ("server.pem", "server.key", "ca.pem")
    paths = {name: json.dumps(str(directory / name)) for name in files}
    config = (
        f"tls {{ cert_file: {paths['server.pem']}, key_file: {paths['server.key']}, "
        f"ca_file: {paths['ca.pem']}, verify: true }}"
    )
    good = {
        "NATS_CA": str(directory / "ca.pem"),
        "NATS_CERT": str(directory / "client.pem"),
        "NATS_KEY": str(directory / "client.key"),
    }
    return config, good, good | {"NATS_CA": str(directory / "other.pem")}


@pytest.mark.parametrize("way", [with_password, with_token, with_nkey, with_creds, with_tls])
def test_a_way_to_authenticate(
    way: Callable[[Path], tuple[str, dict[str, str], dict[str, str]]], tmp_path: Path
) -> None:
    config, good, bad = way(tmp_path)
    server = NatsServer(tmp_path / "nats", config=config)
    server.start()
    try:
        url = server.url.replace("127.0.0.1", "localhost") if way is with_tls else server.url
        assert connects({"NATS_URL": url, **good}, tmp_path)
        with pytest.raises(BusUnavailable, match="cannot connect to NATS"):
            connects({"NATS_URL": url, **bad}, tmp_path)
    finally:
        server.kill()


def test_a_missing_credentials_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BusUnavailable, match="NATS_CREDS: there is no file"):
        connects({"NATS_URL": "nats://127.0.0.1:1", "NATS_CREDS": "/nowhere/x.creds"}, tmp_path)


@pytest.mark.parametrize("way", ["tls://", "NATS_CA"])
def test_whoever_wants_tls_tells_nothing_to_a_server_without(way: str, tmp_path: Path) -> None:
    with_tls(tmp_path)
    heard: list[bytes] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """As a server without TLS does, or somebody in its place."""
        writer.write(b'INFO {"max_payload": 1048576, "auth_required": true}\r\n')
        heard.append(await reader.read())
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            scheme = "tls" if way == "tls://" else "nats"
            environ = {"NATS_URL": f"{scheme}://ann:secret@127.0.0.1:{port}"}
            if way == "NATS_CA":
                environ["NATS_CA"] = str(tmp_path / "ca.pem")
            settings = Settings.from_env({"SANDSTREAM_HOME": str(tmp_path / "unused"), **environ})
            with pytest.raises(BusUnavailable, match="the server does not offer TLS"):
                await open_bus(settings)

    asyncio.run(main())
    assert set(heard) == {b""}
