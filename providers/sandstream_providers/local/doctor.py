"""What ``doctor`` says about sandboxes on this machine. Each thing is tried, not guessed."""

from __future__ import annotations

from sandstream_providers.interface import ProviderUnavailable
from sandstream_providers.local.machine import Machine, describe, probe
from sandstream_providers.processes import LINUX
from sandstream_providers.registry import Finding, Question

_SETTING = "SANDSTREAM_LOCAL_ISOLATION"
_UNLIMITED = {
    "memory": "a watchdog limits memory, which a quick command can outrun",
    "cpu": "CPU time is not limited",
    "pids": "processes are limited for each user, not for each sandbox",
}
_HAND_OVER = (
    "the kernel limits them where this user has control groups: run as root, or in a systemd "
    "service with Delegate=yes and KillMode=process"
)


async def examine(question: Question) -> list[Finding]:
    """Can this machine have sandboxes, and what limits them?"""
    asked = question.settings.isolation
    if asked == "none":
        return [
            Finding(
                name="sandboxes",
                state="warning",
                found=f"without isolation: {_SETTING} is none",
                todo="commands of agents have all rights of this user; unset it where that matters",
            )
        ]
    if asked != "required":
        return [_problem(f"{_SETTING} is {asked!r}", "set it to required or none")]
    try:
        machine = await probe("required")
    except ProviderUnavailable as error:
        if question.is_alone and LINUX:  # no other machine can serve them; other systems never can
            return [_problem("none: runs of sandbox agents fail on this machine", str(error))]
        found = "none on this machine"
        return [Finding(name="sandboxes", state="warning", found=found, todo=str(error))]
    facts = describe(machine)
    fences = f"seccomp {facts['seccomp']}, Landlock {facts['landlock']}"
    found = f"{facts['isolation']}; {fences}"
    return [Finding(name="sandboxes", state="ok", found=found), _limits(machine)]


def _problem(found: str, todo: str) -> Finding:
    return Finding(name="sandboxes", state="problem", found=found, todo=todo)


def _limits(machine: Machine) -> Finding:
    missing = [text for name, text in _UNLIMITED.items() if machine.groups.version(name) is None]
    if missing:
        found = "; ".join(missing)
        return Finding(name="limits", state="warning", found=found, todo=_HAND_OVER)
    facts = describe(machine)
    text = ", ".join(f"{name}: {facts[name]}" for name in ("memory", "cpu", "processes"))
    return Finding(name="limits", state="ok", found=text)
