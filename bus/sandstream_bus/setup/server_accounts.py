"""Writes the accounts and users of a NATS server's configuration.

Each installation, or tenant, has two accounts: one with its streams, and one for outside people and
programs, which sees of the first what ``roles.gate`` allows. Two tenants share nothing, so both may
have the same prefix.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sandstream_bus.nats.topology import Topology
from sandstream_bus.setup.roles import (
    Gate,
    Grant,
    InvalidRole,
    gate,
    grant_of,
    inbox_of,
    is_outside,
    outer,
)
from sandstream_bus.wire.replies import OUTSIDE_API
from sandstream_bus.wire.subjects import check_user

_SERVER_PAYLOAD_BYTES = 1024 * 1024


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one installation on the server; None: only those of the server."""

    store_bytes: int | None = None
    streams: int = 12
    """Our nine streams, and the lock of a set-up."""
    consumers: int = 10_000
    outside_connections: int = 1000
    outside_subscriptions: int = 20_000
    payload_bytes: int = _SERVER_PAYLOAD_BYTES


class User(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One user of the server, and its roles."""

    name: str
    """The user's name in Sandstream: the owner of its runs."""
    roles: list[str]
    password: str
    tenant: str = ""

    @property
    def login(self) -> str:
        """The user's name at the server, which all tenants share."""
        return f"{self.tenant}.{self.name}" if self.tenant else self.name

    def check(self) -> None:
        """Raise for an invalid name or role."""
        check_user(self.name)
        is_outside(self.roles)

    @property
    def is_outside(self) -> bool:
        return is_outside(self.roles)

    def grant(self, topology: Topology) -> Grant:
        return grant_of(topology, self.name, self.roles)

    def environment(self, prefix: str) -> dict[str, str]:
        """The environment of a process that acts as this user."""
        found = {
            "NATS_USER": self.login,
            "NATS_PASSWORD": self.password,
            "NATS_INBOX_PREFIX": inbox_of(self.name),
            "SANDSTREAM_PREFIX": prefix,
        }
        return found | ({"SANDSTREAM_USER": self.name} if self.is_outside else {})


def account_of(topology: Topology, tenant: str = "") -> str:
    """The name of the account with the streams; the outside account's name adds ``_USERS``."""
    return (tenant or topology.subjects.stream_stem).upper()


def server_accounts(
    topology: Topology, users: Sequence[User], limits: dict[str, Limits] | None = None
) -> str:
    """The configuration, to be included in a server's file. ``limits``: by tenant."""
    tenants = list(dict.fromkeys(user.tenant for user in users))
    _check(topology, users, tenants)
    limits = limits or {}
    blocks = [
        _blocks(topology, it, [user for user in users if user.tenant == it], limits.get(it))
        for it in tenants
    ]
    return "accounts {\n" + "\n".join(blocks) + "}\n"


def _check(topology: Topology, users: Sequence[User], tenants: list[str]) -> None:
    seen: set[str] = set()
    for user in users:
        user.check()
        if user.login in seen:
            raise InvalidRole(f"there are two users {user.login!r}")
        seen.add(user.login)
    names = [account_of(topology, it) + end for it in tenants for end in ("", "_USERS")]
    for tenant in filter(None, tenants):
        check_user(tenant)
    twice = sorted({it for it in names if names.count(it) > 1})
    if twice:
        raise InvalidRole(f"two tenants would have the account {twice[0]}: rename one")


def _blocks(topology: Topology, tenant: str, users: list[User], limits: Limits | None) -> str:
    inside = account_of(topology, tenant)
    passes = gate(topology)
    return _inside(topology, inside, users, passes, limits) + _outside(
        topology, inside, users, passes, limits or Limits()
    )


def _inside(
    topology: Topology, name: str, users: list[User], passes: Gate, limits: Limits | None
) -> str:
    if limits is None:
        store = "    jetstream: enabled\n"
    else:
        size = -1 if limits.store_bytes is None else limits.store_bytes
        store = (
            "    # Reserved: all tenants together must fit into the server's max_file_store. A\n"
            "    # store that is full refuses, and loses nothing.\n"
            f"    jetstream {{ max_file: {size}, max_mem: 64MB, "
            f"max_streams: {limits.streams}, max_consumers: {limits.consumers} }}\n"
        )
    to = f"accounts: [{name}_USERS]"
    exports = [
        *(f'{{ service: "{it}", {to} }}' for it in passes.requests),
        *(f'{{ service: "{it}", {to}, response_type: stream }}' for it in passes.reads),
        *(f'{{ stream: "{it}", {to} }}' for it in passes.live),
    ]
    return (
        "  # The streams and the trusted users: actors, workers, administrators.\n"
        f"  {name} {{\n{store}"
        f"    users: [\n{_users(topology, [it for it in users if not it.is_outside])}    ]\n"
        "    # What people outside may ask for, and hear.\n"
        f"    exports: [\n{_listed(exports)}    ]\n"
        "  }\n"
    )


def _outside(topology: Topology, inside: str, users: list[User], passes: Gate, of: Limits) -> str:
    imports = [
        *(
            f'{{ service: {{ account: {inside}, subject: "{it}" }}, to: "{outer(it)}" }}'
            for it in (*passes.requests, *passes.reads)
        ),
        *(f'{{ stream: {{ account: {inside}, subject: "{it}" }} }}' for it in passes.live),
    ]
    return (
        "  # People and programs outside. The border keeps answers of the server from any subject\n"
        "  # but the asker's own.\n"
        f"  {inside}_USERS {{\n"
        f"    limits {{ max_connections: {of.outside_connections}, "
        f"max_subscriptions: {of.outside_subscriptions}, max_payload: {of.payload_bytes} }}\n"
        f"    users: [\n{_users(topology, [it for it in users if it.is_outside])}    ]\n"
        "    # Not the API of this account, which has no streams, but that of the other.\n"
        f'    mappings: {{ "$JS.API.>": "{OUTSIDE_API}.>" }}\n'
        f"    imports: [\n{_listed(imports)}    ]\n"
        "  }\n"
    )


def _users(topology: Topology, users: list[User]) -> str:
    return "".join(_user(it, it.grant(topology)) for it in users)


def _user(user: User, may: Grant) -> str:
    return (
        f"      # {', '.join(user.roles)}\n"
        f"      {{ user: {_text(user.login)}, password: {_text(user.password)}, permissions: {{\n"
        f"          publish: {{ {_allowed(may.publish)} }}\n"
        f"          subscribe: {{ {_allowed(may.subscribe)} }}\n"
        "      } }\n"
    )


def _allowed(subjects: list[str]) -> str:
    # an empty list of allowed subjects would allow all of them
    return f"allow: {_text(subjects)}" if subjects else 'deny: [">"]'


def _listed(lines: list[str]) -> str:
    return "".join(f"      {line}\n" for line in lines)


def _text(value: object) -> str:
    """Strings for the server's configuration, quoted like JSON."""
    return msgspec.json.encode(value).decode()
