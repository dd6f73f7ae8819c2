"""Reads the environment once into a value that is passed down."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from sandstream_bus.embedded.statedir import default_home
from sandstream_bus.environment import environment
from sandstream_bus.errors import InvalidSubject
from sandstream_bus.nats.connect_options import ConnectOptions
from sandstream_bus.nats.retention import InvalidRetention, RetentionChoice, parse_bytes
from sandstream_bus.wire.subjects import check_user

from sandstream.exceptions import UserError

_SCHEMES = ("nats", "tls", "ws", "wss")
_HOST = re.compile(r"[\w.:%-]+")

Number = TypeVar("Number", int, float)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The location and the settings of the bus.

    Without ``NATS_URL`` a private server is started below ``home``; with it, that cluster is used.
    """

    home: Path
    nats: ConnectOptions | None = None
    prefix: str = "sandstream"
    sync: str = "1s"
    retention: RetentionChoice = RetentionChoice()
    """The retention from the environment. It applies only when the streams are created; an existing
    installation has its own settings, which ``sandstream setup`` changes.
    """
    monitor_urls: list[str] = []
    """The HTTP monitoring URLs of the NATS servers, for ``doctor``."""
    user: str | None = None
    """The user in whose name tasks and requests are published. None: write directly to the log,
    which needs the permissions of an actor, if the server has permissions.
    """
    harness_pool: str | None = None
    """The harness pool that takes the turns of ``Runner.run``; None: this process."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        env = environment(environ)
        return cls(
            home=default_home(env),
            nats=_nats(env),
            prefix=env.get("SANDSTREAM_PREFIX", "sandstream"),
            sync=env.get("SANDSTREAM_SYNC", "1s"),
            retention=_retention(env),
            monitor_urls=_listed(env.get("NATS_MONITOR_URL")),
            user=_user(env),
            harness_pool=env.get("SANDSTREAM_HARNESS_POOL") or None,
        )


def _nats(env: Mapping[str, str]) -> ConnectOptions | None:
    url = env.get("NATS_URL")
    if not url:
        return None
    servers = [_address(it) for it in _listed(url)]
    if not servers:
        raise UserError(f"NATS_URL: {url[:80]!r} names no server; write nats://host:4222")
    return ConnectOptions(
        servers=servers,
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


def _address(url: str) -> str:
    """The URL, if it can be an address; the client would try an invalid one for seconds."""
    try:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        host, port = parts.hostname or "", parts.port
        host.encode("idna")
        usable = parts.scheme in _SCHEMES and _HOST.fullmatch(host) is not None and port != 0
    except ValueError:  # also UnicodeError
        usable = False
    if usable:
        return url
    shown = url.rpartition("@")[2]  # the part before it may be secret
    raise UserError(f"NATS_URL: {shown[:80]!r} is not a server address; write nats://host:4222")


def _user(env: Mapping[str, str]) -> str | None:
    user = env.get("SANDSTREAM_USER")
    if not user:
        return None
    try:
        return check_user(user)
    except InvalidSubject as error:
        raise UserError(f"SANDSTREAM_USER: {error}") from None


def _listed(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _retention(env: Mapping[str, str]) -> RetentionChoice:
    return RetentionChoice(
        replicas=_checked(env, "SANDSTREAM_REPLICAS", _whole, "replicas"),
        max_age_days=_checked(env, "SANDSTREAM_MAX_AGE_DAYS", _number, "max_age_days"),
        max_bytes=_checked(env, "SANDSTREAM_MAX_BYTES", parse_bytes, "max_bytes"),
    )


def _checked(
    env: Mapping[str, str], name: str, read: Callable[[str], Number], field: str
) -> Number | None:
    """The value of a variable; the error names the variable."""
    text = env.get(name)
    if not text:
        return None
    try:
        value = read(text)
        asked: dict[str, Any] = {field: value}
        RetentionChoice(**asked).check()
    except (InvalidRetention, ValueError) as error:
        raise UserError(f"{name}={text!r}: {error}") from None
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("it is not a number") from None


def _whole(text: str) -> int:
    number = _number(text)
    if number != number // 1:
        raise ValueError("it is not a whole number")
    return int(number)
