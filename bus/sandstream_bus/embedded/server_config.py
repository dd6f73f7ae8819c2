"""The embedded server's configuration text and the meaning of its sync interval.

Does not know processes, locks or ports: the port is given on nats-server's command line. There is
no HTTP monitoring, because any user of the machine could read it. The keeper asks for the server's
health over NATS, as a user of the system account whose password only it knows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandstream_bus.embedded.errors import SyncInvalid
from sandstream_bus.embedded.statedir import StateDir

_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

KEEPER_USER = "keeper"
_TEMPLATE = """\
# Written by Sandstream at every start; changes are lost.
server_name: {server_name}
ports_file_dir: {ports}
max_payload: 1MB
write_deadline: "5s"
lame_duck_duration: "60s"
authorization {{ users: [ {{ user: {user}, password: {password} }} ] }}
accounts {{ SYSTEM {{ users: [ {{ user: {keeper}, password: {keeper_password} }} ] }} }}
system_account: SYSTEM
jetstream {{
  store_dir: {store}
  max_mem: 512MB, max_file: 20GB
  sync_interval: {sync}
  limits {{ default_max_consumers: 5000 }}
}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What stays the same when the server restarts, so that clients reconnect by themselves."""

    server_name: str
    user: str
    password: str


def sync_seconds(sync: str) -> float:
    """How many seconds of acknowledged work a power loss may destroy; 0 for `always`."""
    if sync == "always":
        return 0.0
    if not _DURATION.fullmatch(sync):
        raise SyncInvalid(sync)
    seconds = sum(float(number) * _UNIT_S[unit] for number, unit in _PART.findall(sync))
    if seconds <= 0:
        raise SyncInvalid(sync)
    return seconds


def render_config(state: StateDir, identity: Identity, sync: str, keeper_password: str) -> bytes:
    """``keeper_password``: the password of the system account's only user."""
    sync_seconds(sync)
    text = _TEMPLATE.format(
        server_name=_quoted(identity.server_name),
        ports=_quoted(str(state.ports)),
        user=_quoted(identity.user),
        password=_quoted(identity.password),
        keeper=_quoted(KEEPER_USER),
        keeper_password=_quoted(keeper_password),
        store=_quoted(str(state.store)),
        sync=_quoted(sync),
    )
    return text.encode(errors="surrogateescape")  # paths need not be UTF-8


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    for char, name in (("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        escaped = escaped.replace(char, name)
    return f'"{escaped}"'
