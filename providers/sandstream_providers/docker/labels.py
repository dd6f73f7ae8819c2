"""How a box is recognised: the name of its container, and labels that only we write.

All that the engine lists may be forged by its other users. A container counts as a box only
if its name and its labels agree with each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from sandstream_providers.interface import KEY, BoxSpec, ProviderError

PREFIX = "io.sandstream."
OWNER, BOX, SPEC = f"{PREFIX}owner", f"{PREFIX}key", f"{PREFIX}spec"
POOL = f"{PREFIX}pool"
"""A container that waits for its box, or has become one: see ``pool``."""
COMPANION = f"{PREFIX}of"
"""A container that belongs to a box: its proxy, or a keeper of its volumes."""
_NAMED = ("owner", "sandbox", "generation", "run")
_OTHER = f"{PREFIX}label."
_NAME = "sandstream-"


def container_name(key: str) -> str:
    return f"{_NAME}{key}"


def key_of_name(name: str) -> str | None:
    """The key that a container's name stands for; None: it is not a name of ours."""
    key = name.lstrip("/").removeprefix(_NAME)
    return key if name.lstrip("/").startswith(_NAME) and KEY.fullmatch(key) else None


def labels_of(spec: BoxSpec, own: Mapping[str, str]) -> dict[str, str]:
    """The labels of a box's container. ``own``: what the user wants besides."""
    forbidden = [name for name in own if name.startswith(PREFIX)]
    if forbidden:
        raise ProviderError(f"labels of users cannot begin with {PREFIX}: {', '.join(forbidden)}")
    ours = {BOX: spec.key, SPEC: digest_of(spec)}
    for name, value in spec.labels.items():
        ours[f"{PREFIX if name in _NAMED else _OTHER}{name}"] = value
    return {**own, **ours}


def digest_of(spec: BoxSpec) -> str:
    """Tells two specifications apart. The values of the environment may be secrets: only their
    names count.
    """
    shown = msgspec.structs.replace(spec, env=dict.fromkeys(sorted(spec.env), ""))
    return hashlib.sha256(msgspec.json.encode(shown)).hexdigest()[:16]


def spec_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that the box was made with."""
    found = {name: labels[PREFIX + name] for name in _NAMED if PREFIX + name in labels}
    others = {it: value for it, value in labels.items() if it.startswith(_OTHER)}
    return found | {it.removeprefix(_OTHER): value for it, value in others.items()}


def box_key(name: str, labels: Mapping[str, str]) -> str | None:
    """The key of the box that a container is. None: it is not ours, even if its labels say so."""
    key = key_of_name(name)
    if key is None or not labels.get(OWNER):
        return None
    return key if labels.get(BOX) == key or POOL in labels else None


def is_box_of(spec: BoxSpec, name: str, labels: Mapping[str, str]) -> bool:
    """Was this container made for this box, by us or by another process of ours?"""
    if box_key(name, labels) != spec.key:
        return False
    if POOL in labels:
        return labels[OWNER] == spec.labels.get("owner")
    return all(labels.get(PREFIX + it) == spec.labels.get(it) for it in _NAMED[:3])
