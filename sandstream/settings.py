"""The environment, read once, at the edge, into one value that is passed down."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from sandstream_bus.connect_options import ConnectOptions
from sandstream_bus.statedir import default_home
from sandstream_bus.topology import Retention

from sandstream.exceptions import UserError


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the bus is and how it is kept.

    Without ``NATS_URL`` a private server is started below ``home``; with it, that cluster is used.
    """

    home: Path
    nats: ConnectOptions | None = None
    prefix: str = "sandstream"
    sync: str = "1s"
    retention: Retention = Retention()
    harness_pool: str | None = None
    """Let the harness replicas of this pool take the turns of ``Runner.run``; None: this process.
    """

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        env = os.environ if environ is None else environ
        return cls(
            home=default_home(env),
            nats=_nats(env),
            prefix=env.get("SANDSTREAM_PREFIX", "sandstream"),
            sync=env.get("SANDSTREAM_SYNC", "1s"),
            retention=Retention(
                replicas=_whole(env, "SANDSTREAM_REPLICAS", 1),
                max_age_days=_number(env, "SANDSTREAM_MAX_AGE_DAYS", 30),
            ),
            harness_pool=env.get("SANDSTREAM_HARNESS_POOL") or None,
        )


def _nats(env: Mapping[str, str]) -> ConnectOptions | None:
    url = env.get("NATS_URL")
    if not url:
        return None
    return ConnectOptions(
        servers=[server.strip() for server in url.split(",") if server.strip()],
        user=env.get("NATS_USER"),
        password=env.get("NATS_PASSWORD"),
        token=env.get("NATS_TOKEN"),
        creds_file=env.get("NATS_CREDS"),
        nkey_seed_file=env.get("NATS_NKEY"),
        tls_ca_file=env.get("NATS_CA"),
        tls_cert_file=env.get("NATS_CERT"),
        tls_key_file=env.get("NATS_KEY"),
        inbox_prefix=env.get("NATS_INBOX_PREFIX", "_INBOX"),
    )


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name)
    if not text:
        return default
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{name}={text!r} is not a number") from None


def _whole(env: Mapping[str, str], name: str, default: int) -> int:
    number = _number(env, name, default)
    if number != int(number) or number < 1:
        raise UserError(f"{name}={env.get(name)!r} must be a whole number, at least 1")
    return int(number)
