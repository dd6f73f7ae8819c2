"""Decides which calls to a server need approval: the forms of ``require_approval``."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeAlias, TypedDict

from sandstream.exceptions import UserError
from sandstream.run_context import RunContextWrapper


class RequireApprovalToolList(TypedDict, total=False):
    tool_names: list[str]


class RequireApprovalObject(TypedDict, total=False):
    """Tools in two groups; tools in neither group need no approval."""

    always: RequireApprovalToolList
    never: RequireApprovalToolList


RequireApprovalPolicy: TypeAlias = Literal["always", "never"]
RequireApprovalMapping: TypeAlias = dict[str, RequireApprovalPolicy]
LocalMCPApprovalCallable: TypeAlias = Callable[
    [RunContextWrapper[Any], Any, Any], bool | Awaitable[bool]
]
"""``(context, agent, tool)`` -> whether a call of that tool needs approval."""
RequireApprovalSetting: TypeAlias = (
    RequireApprovalPolicy
    | RequireApprovalObject
    | RequireApprovalMapping
    | LocalMCPApprovalCallable
    | bool
    | None
)
ApprovalPolicy: TypeAlias = bool | dict[str, bool] | LocalMCPApprovalCallable
NeedsApproval: TypeAlias = (
    bool | Callable[[RunContextWrapper[Any], dict[str, Any], str], Awaitable[bool]]
)


def approval_policy(setting: RequireApprovalSetting) -> ApprovalPolicy:
    """Normalize the setting: one value for all tools, a value per tool, or a function.

    Raises:
        UserError: if the setting has none of the supported forms.
    """
    if setting is None:
        return False
    if isinstance(setting, bool):
        return setting
    if isinstance(setting, Mapping):
        return _grouped(setting) if _is_grouped(setting) else _by_tool(setting)
    if callable(setting):
        return setting
    return _flag(setting, "require_approval")


def needs_approval(policy: ApprovalPolicy, tool: Any, agent: Any | None) -> NeedsApproval:
    """``needs_approval`` of a tool. True if the policy is a function and there is no agent."""
    if isinstance(policy, bool):
        return policy
    if isinstance(policy, dict):
        return policy.get(tool.name, False)
    if agent is None:
        return True

    async def ask(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        verdict = policy(context, agent, tool)
        return bool(await verdict if inspect.isawaitable(verdict) else verdict)

    return ask


def _is_grouped(setting: Mapping[str, Any]) -> bool:
    groups = (setting.get("always"), setting.get("never"))
    return any(isinstance(group, Mapping) and "tool_names" in group for group in groups)


def _grouped(setting: Mapping[str, Any]) -> dict[str, bool]:
    unknown = sorted(set(setting) - {"always", "never"})
    if unknown:
        raise UserError(
            f"Invalid require_approval tool list policy: unexpected keys {unknown!r}; expected "
            "only 'always' and 'never'."
        )
    always = _names(setting.get("always", {}), "always")
    never = _names(setting.get("never", {}), "never")
    both = sorted(set(always) & set(never))
    if both:
        raise UserError(
            "Invalid require_approval tool list policy: tool names cannot appear in both always "
            f"and never: {both!r}."
        )
    return {**dict.fromkeys(always, True), **dict.fromkeys(never, False)}


def _names(group: Any, policy: str) -> list[str]:
    where = f"require_approval.{policy}"
    if not isinstance(group, Mapping):
        raise UserError(
            f"Invalid {where}: expected an object with tool_names, got {type(group).__name__}."
        )
    names = group.get("tool_names", [])
    where = f"{where}.tool_names"
    if not isinstance(names, list):
        raise UserError(
            f"Invalid require_approval tool_names at {where}: expected a list of strings, got "
            f"{type(names).__name__}."
        )
    for index, name in enumerate(names):
        if not isinstance(name, str):
            raise UserError(
                f"Invalid require_approval tool name at {where}[{index}]: expected a string, got "
                f"{type(name).__name__}."
            )
    return names


def _by_tool(setting: Mapping[str, Any]) -> dict[str, bool]:
    return {
        str(name): value if isinstance(value, bool) else _flag(value, f"require_approval[{name!r}]")
        for name, value in setting.items()
    }


def _flag(value: object, where: str) -> bool:
    if value == "always":
        return True
    if value == "never":
        return False
    raise UserError(
        f"Invalid require_approval value at {where}: expected 'always' or 'never', got {value!r}."
    )
