"""What ``doctor`` says about sandboxes in containers."""

from __future__ import annotations

from sandstream_providers.docker.engine import Engine
from sandstream_providers.docker.facts import EngineFacts, ask
from sandstream_providers.interface import ProviderUnavailable
from sandstream_providers.registry import Finding, Question

_ASK_S = 10.0
"""People wait for the answer."""
_NONE = "not used: no engine is on this machine, and DOCKER_HOST names none"


async def examine(question: Question) -> list[Finding]:
    """Is there an engine, and does it keep the limits of boxes?"""
    engine = Engine(question.settings.endpoint, call_s=_ASK_S)
    try:
        facts = await ask(engine)
    except ProviderUnavailable as error:
        if not engine.is_expected:
            return [Finding(name="docker", state="ok", found=_NONE)]
        found = "no engine can be used"
        return [Finding(name="docker", state="warning", found=found, todo=str(error))]
    finally:
        await engine.close()
    text = f"Docker {facts.version}, API {facts.api}, {facts.driver}, runtime {facts.runtime}"
    return [Finding(name="docker", state="ok", found=text), *_limits(facts)]


def _limits(facts: EngineFacts) -> list[Finding]:
    kept = {
        "memory": facts.limits_memory,
        "CPU time": facts.limits_cpu,
        "processes": facts.limits_processes,
        "system calls (seccomp)": facts.seccomp,
    }
    missing = [name for name, is_kept in kept.items() if not is_kept]
    if not missing:
        return []
    todo = "give the engine control groups of its own (cgroup v2 with delegation) and seccomp"
    found = f"this engine does not limit {', '.join(missing)}"
    return [Finding(name="docker limits", state="warning", found=found, todo=todo)]
