"""Converts a sandbox's spec for the provider. Secrets get their values here, on the node that uses
them, and nowhere else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import NoReturn

import msgspec
from sandstream_bus.environment import environment
from sandstream_bus.wire.sandboxes import SandboxSpec
from sandstream_providers.interface import BoxSpec, Grant, Limits, ResolveRule

from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.sandbox.failures import Refused
from sandstream_actors.sandbox.policy import Policy, how_to_allow
from sandstream_actors.sandbox.sources import CheckedPlan, Sources

SECRET_PREFIX = "SANDSTREAM_SECRET_"
"""Only variables with this prefix can be asked for, so that no task can name the actor's own."""

MOST_PORTS = 64
MOST_GRANTS = 256


async def check_spec(spec: SandboxSpec, sources: Sources) -> CheckedPlan:
    """Refuse an impossible or forbidden spec before anything is created: requests are untrusted."""
    _check_policy(spec, sources.policy)
    wrong = [port for port in spec.ports if not 1 <= port <= 65_535]
    if wrong:
        _refuse(f"port {wrong[0]} is not valid: ports are from 1 to 65535")
    for what, count, most in (
        ("ports", len(spec.ports), MOST_PORTS),
        ("path grants", len(spec.grants), MOST_GRANTS),
    ):
        if count > most:
            _refuse(f"{count} {what} are too many: at most {most}")
    for name, value in msgspec.structs.asdict(spec.limits).items():
        if value is not msgspec.UNSET and value is not None and not value > 0:
            _refuse(f"the limit {name} must be greater than 0 (None: no limit), not {value}")
    return await sources.check(spec.plan, spec.grants)


def _check_policy(spec: SandboxSpec, policy: Policy) -> None:
    if not policy.network and spec.network != "none":
        _refuse(f"this sandbox actor gives no network: {how_to_allow('network')}")
    if not policy.network and spec.options.get("egress"):
        _refuse(f"this sandbox actor gives no network, so no egress: {how_to_allow('network')}")
    if not policy.unlimited and None in (spec.limits.memory_mb, spec.limits.processes):
        _refuse(f"this sandbox actor limits memory and processes: {how_to_allow('unlimited')}")


def _refuse(message: str) -> NoReturn:
    raise Refused("sandbox_config_invalid", message)


def environment_of(spec: SandboxSpec, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of the sandbox's commands."""
    known = environment(environ)
    values: dict[str, str] = {}
    for name, entry in spec.environment.items():
        if entry.secret is None:
            values[name] = entry.value or ""
            continue
        value = known.get(SECRET_PREFIX + entry.secret)
        if value is None:
            raise Refused(
                "sandbox_config_invalid",
                f"the environment variable {name} of the sandbox needs the secret "
                f"{entry.secret!r}; set {SECRET_PREFIX}{entry.secret} where the sandbox actor runs",
                secret=entry.secret,
            )
        values[name] = value
    return values


def box_spec_of(record: SandboxRecord, owner: str, *, may_exist: bool = False) -> BoxSpec:
    """The provider's settings. The environment is passed to each command and not stored with the
    box, because it may contain secrets. ``may_exist``: an earlier attempt may have made the box.
    """
    spec = record.spec
    given = {
        name: value
        for name, value in msgspec.structs.asdict(spec.limits).items()
        if value is not msgspec.UNSET
    }
    return BoxSpec(
        key=record.key,
        labels={
            "owner": owner,
            "sandbox": record.sandbox,
            "generation": str(record.generation),
            "run": spec.run,
        },
        root=spec.root,
        ports=sorted(set(spec.ports)),
        network=spec.network,
        limits=Limits(**given),
        grants=[
            Grant(path=it.path, host_path=it.host_path or it.path, read_only=it.read_only)
            for it in spec.grants
            if not it.inside
        ],
        options=spec.options,
        may_exist=may_exist,
    )


def box_key(owner: str, sandbox: str, generation: int) -> str:
    """The provider's name for this generation's box: legal everywhere, never used again."""
    digest = hashlib.sha256(f"{owner}|{sandbox}|{generation}".encode()).digest()
    return "ss-" + base64.b32encode(digest).decode().lower()[:26]


def rule_of(record: SandboxRecord, root: str) -> ResolveRule:
    """Where paths may lead."""
    grants = record.spec.grants
    return ResolveRule(
        roots=[root, *(it.path for it in grants if not it.read_only)],
        read_only_roots=[it.path for it in grants if it.read_only],
    )
