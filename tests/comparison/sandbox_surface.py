"""The public names of an SDK's sandbox modules, with parameters, defaults, members and methods.

`python -m comparison.sandbox_surface` writes those of the peer as JSON; we import the rest.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import json
import sys
from collections.abc import Iterable
from typing import Any

MODULES = (
    "sandbox",
    "sandbox.capabilities",
    "sandbox.config",
    "sandbox.entries",
    "sandbox.errors",
    "sandbox.files",
    "sandbox.manifest",
    "sandbox.materialization",
    "sandbox.sandbox_agent",
    "sandbox.sandboxes",
    "sandbox.sandboxes.docker",
    "sandbox.sandboxes.unix_local",
    "sandbox.session",
    "sandbox.session.sandbox_client",
    "sandbox.session.sandbox_session_state",
    "sandbox.snapshot",
    "sandbox.types",
    "sandbox.workspace_paths",
)
_ALSO = (
    "run_config.SandboxArchiveLimits",
    "run_config.SandboxConcurrencyLimits",
    "run_config.SandboxRunConfig",
    "sandbox.capabilities.capability.Capability",
    "sandbox.session.pty_types.PtyExecUpdate",
)
"""Names that users import from elsewhere, too."""

Surface = dict[str, dict[str, str]]
"""`module.Name` -> what it has: parameter, field or member -> default, method -> parameters."""


def surface_of_the_peer() -> Surface:
    """All public names of `agents.sandbox`."""
    names = [
        f"{path}.{name}"
        for path in MODULES
        for name in public_names(importlib.import_module(f"agents.{path}"))
    ]
    return {
        name: described(found, "agents.")
        for name in [*names, *_ALSO]
        if (found := lookup("agents", name)) is not None
    }


def surface_of_ours(names: Iterable[str]) -> Surface:
    """These names, as far as there are such."""
    return {
        name: described(found, "")
        for name in names
        if (found := lookup("sandstream", name)) is not None
    }


def lookup(sdk: str, name: str) -> Any:
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(f"{sdk}.{module}"), last, None)


def public_names(module: Any) -> list[str]:
    """What it says itself; else what is defined in it."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    return [
        name
        for name, value in vars(module).items()
        if name[0] != "_" and getattr(value, "__module__", None) == module.__name__
    ]


def described(value: Any, owners: str) -> dict[str, str]:
    """`owners`: only methods of classes in modules whose names begin so."""
    if not inspect.isclass(value):
        return parameters(value) if callable(value) else {}
    if issubclass(value, enum.Enum):
        return {member.name: repr(member.value) for member in value}
    if issubclass(value, BaseException):
        return parameters(value)
    return {**parameters(value), **fields(value), **methods(value, owners)}


def parameters(function: Any) -> dict[str, str]:
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    skipped = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        one.name: "" if one.default is one.empty else shown(one.default)
        for one in found
        if one.kind not in skipped and one.name[0] != "_" and one.name not in ("self", "cls")
    }


def fields(value: Any) -> dict[str, str]:
    """Of Pydantic models and dataclasses, whose signatures do not show every default."""
    found: dict[str, str] = {}
    for name, field in getattr(value, "model_fields", {}).items():
        if name[0] == "_" or field.exclude:
            continue
        required = field.is_required()
        found[name] = "" if required else shown(field.get_default(call_default_factory=True))
    if dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            if each.name[0] == "_":
                continue
            if each.default_factory is not dataclasses.MISSING:
                found[each.name] = shown(each.default_factory())
            else:
                none = each.default is dataclasses.MISSING
                found[each.name] = "" if none else shown(each.default)
    return found


def methods(value: Any, owners: str) -> dict[str, str]:
    """`name()` -> the names of its parameters."""
    found: dict[str, str] = {}
    for owner in reversed(value.__mro__):
        if not owner.__module__.startswith(owners):
            continue
        for name, member in vars(owner).items():
            function = getattr(member, "__func__", member)
            if name[0] != "_" and inspect.isfunction(function):
                found[f"{name}()"] = " ".join(parameters(function))
    return found


def shown(value: Any) -> str:
    """A default, as text without what differs from process to process."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, int | float | str | bytes | bool | None):
        return repr(value)
    if isinstance(value, list | tuple | dict | set | frozenset):
        if not value:
            return repr(value)
        if isinstance(value, dict):
            return f"dict of {len(value)}"
        return f"[{', '.join(shown(one) for one in value)}]"
    return type(value).__name__


if __name__ == "__main__":
    sys.stdout.write(json.dumps(surface_of_the_peer()))
