"""Addresses and credentials of NATS as one value. Does not read the environment."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Protocol

import msgspec


class ConnectOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All authentication methods of NATS; at most one is needed."""

    servers: list[str]
    name: str = "sandstream"
    user: str | None = None
    password: str | None = None
    token: str | None = None
    creds_file: str | None = None
    nkey_seed_file: str | None = None
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    inbox_prefix: str = "_INBOX"
    connect_timeout_s: float = 5.0

    def client_arguments(self) -> dict[str, Any]:
        """Arguments of the nats-py client."""
        arguments: dict[str, Any] = {
            "servers": list(self.servers),
            "name": self.name,
            "inbox_prefix": self.inbox_prefix,
            "connect_timeout": 2,
            "reconnect_time_wait": 0.1,
        }
        for key, value in (
            ("user", self.user),
            ("password", self.password),
            ("token", self.token),
            ("user_credentials", _existing(self.creds_file, "NATS_CREDS")),
            ("nkeys_seed", _existing(self.nkey_seed_file, "NATS_NKEY")),
        ):
            if value:
                arguments[key] = value
        if self.tls_ca_file or self.tls_cert_file:
            arguments["tls"] = self._tls_context()
        return arguments

    def _tls_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=_existing(self.tls_ca_file, "NATS_CA"))
        if self.tls_cert_file:
            context.load_cert_chain(
                _existing(self.tls_cert_file, "NATS_CERT") or "",
                _existing(self.tls_key_file, "NATS_KEY"),
            )
        return context


class ServerReviver(Protocol):
    """Restarts a private server after it died."""

    async def revive(self, options: ConnectOptions) -> ConnectOptions: ...


def _existing(path: str | None, variable: str) -> str | None:
    if path and not Path(path).is_file():
        raise FileNotFoundError(f"{variable}: there is no file {path}")
    return path
