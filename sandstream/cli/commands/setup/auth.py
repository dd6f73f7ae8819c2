"""``sandstream setup --print-auth``: the NATS server's accounts, users and permissions.

Contacts no server. It generates the passwords and prints or writes them once; store them safely.
"""

from __future__ import annotations

import argparse
import os
import secrets
from pathlib import Path

import msgspec
from sandstream_bus.errors import InvalidSubject
from sandstream_bus.nats.retention import InvalidRetention, parse_bytes
from sandstream_bus.nats.topology import Topology
from sandstream_bus.setup.roles import parse_role
from sandstream_bus.setup.server_accounts import Limits, User, account_of, server_accounts
from sandstream_bus.wire.subjects import SHARED, Subjects, check_user

from sandstream.cli.exits import CliError, Exit
from sandstream.cli.session import put_json, say
from sandstream.cli.terminal.render import out
from sandstream.settings import Settings

_DEFAULT_STORE = "10GB"
_DEFAULT_USERS = (
    "admin=admin",
    "harness=harness",
    "worker=worker",
    "sandbox=sandbox",
    "memory=memory",
    "sessions=sessions",
    "tracing=tracing",
    "program=program",
    f"{SHARED}=submit,follow,approve,cancel,retry,input,consolidate,session",
)
_HEAD = """\
# Accounts, users and permissions of a NATS server for Sandstream, written by
# `sandstream setup --print-auth`. Include it in the server's configuration, in the place of
# `authorization`:
#
#   include "./auth.conf"
#
# It holds passwords. docs/operations.md ("Who may do what") explains the roles.

"""


def print_auth(arguments: argparse.Namespace) -> int:
    """Print or write it; bad input changes nothing."""
    topology = Topology(Subjects(Settings.from_env().prefix))
    limits = dict(map(_tenant, arguments.tenant))
    directory = None if arguments.auth_dir is None else Path(arguments.auth_dir)
    users = [
        _with_password(user, directory)
        for text in arguments.grant or _DEFAULT_USERS
        for user in _users(text, list(limits) or [""])
    ]
    config = _HEAD + server_accounts(topology, users, limits)
    if arguments.json:
        for user in users:
            put_json(_described(topology, user))
    if directory is not None:
        _write(directory, config, users, topology.subjects.prefix)
    elif not arguments.json:
        out().line(config.rstrip("\n"))
    return Exit.OK


def _users(text: str, tenants: list[str]) -> list[User]:
    """``[TENANT/]NAME=ROLE,ROLE``: in that tenant, or in each."""
    name, equals, roles = text.partition("=")
    if not equals or not roles:
        raise CliError(
            Exit.USAGE, f"--grant {text}: write NAME=ROLE,ROLE, for example alice=submit,follow"
        )
    tenant, slash, rest = name.partition("/")
    if slash:
        if tenant not in tenants:
            known = ", ".join(filter(None, tenants)) or "none; add --tenant"
            raise CliError(Exit.USAGE, f"--grant {text}: there is no tenant {tenant!r} ({known})")
        name, tenants = rest, [tenant]
    check_user(name)
    listed = [it.strip() for it in roles.split(",")]
    for role in listed:
        parse_role(role)
    return [User(name=name, roles=listed, password="", tenant=it) for it in tenants]


def _tenant(text: str) -> tuple[str, Limits]:
    name, _, size = text.partition("=")
    try:
        return check_user(name), Limits(store_bytes=parse_bytes(size or _DEFAULT_STORE))
    except (InvalidSubject, InvalidRetention) as error:
        raise CliError(Exit.USAGE, f"--tenant {text}: {error}") from None


def _with_password(user: User, directory: Path | None) -> User:
    """A user of a directory that is there keeps its password."""
    known = None if directory is None else _known_password(_file(directory, user))
    # a letter first: so it needs no quotes where people pass it on
    return msgspec.structs.replace(user, password=known or "s" + secrets.token_hex(24))


def _known_password(file: Path) -> str | None:
    start = "NATS_PASSWORD="
    lines = file.read_text().splitlines() if file.is_file() else []
    return next((it.removeprefix(start) for it in lines if it.startswith(start)), None)


def _described(topology: Topology, user: User) -> dict[str, object]:
    may = user.grant(topology)
    account = account_of(topology, user.tenant) + ("_USERS" if user.is_outside else "")
    return {
        "user": user.login,
        "account": account,
        "roles": user.roles,
        "publish": may.publish,
        "subscribe": may.subscribe,
        "environment": user.environment(topology.subjects.prefix),
    }


def _file(directory: Path, user: User) -> Path:
    return directory / f"{user.login}.env"


def _write(directory: Path, config: str, users: list[User], prefix: str) -> None:
    """Write the files; only this user may enter the directory. The server's file itself is readable
    by all, so that it can be mounted into a container that runs under another user.
    """
    if directory.exists() and not directory.is_dir():
        raise CliError(Exit.USAGE, f"--auth-dir: {str(directory)!r} is not a directory")
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if directory.stat().st_mode & 0o077:
        raise CliError(Exit.USAGE, f"others can look into {directory}: chmod 700 {directory}")
    for user in users:
        lines = [f"{name}={value}\n" for name, value in user.environment(prefix).items()]
        _replace(_file(directory, user), "".join(lines), 0o600)
    _replace(directory / "auth.conf", config, 0o644)
    say(f"wrote {directory / 'auth.conf'}, and what each user needs: {_names(users)}")


def _names(users: list[User]) -> str:
    return ", ".join(f"{user.login}.env" for user in users)


def _replace(path: Path, text: str, mode: int) -> None:
    """In one step: a server that loads it meanwhile sees the old one or the new one."""
    made = path.with_name(f".{path.name}.new")
    made.unlink(missing_ok=True)
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
    made.replace(path)
