"""What the engine offers, as it says itself."""

from __future__ import annotations

from typing import Any

import msgspec

from sandstream_providers.docker.engine import Engine


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One engine, as far as boxes care."""

    version: str
    api: str
    driver: str
    cgroups: str
    cpus: int
    limits_memory: bool
    limits_swap: bool
    limits_cpu: bool
    limits_processes: bool
    seccomp: bool
    runtime: str
    runtimes: list[str]
    rootless: bool

    @property
    def may_limit_disk(self) -> bool:
        """Whether it may be asked to limit the disk of a container, and says if it cannot. Other
        drivers count the image as well (btrfs, zfs), or ignore the limit (the image store of
        containerd, ``overlayfs``).
        """
        return self.driver == "overlay2"

    @property
    def powers(self) -> frozenset[str]:
        """What boxes of this engine can do."""
        found = {"pty", "ports", "pause", "users", "isolated", "limits.disk"}
        if self.limits_cpu:
            found.add("limits.cpu")
        if self.limits_memory:
            found.add("limits.memory")
        return frozenset(found)


async def ask(engine: Engine) -> EngineFacts:
    """Raises ProviderUnavailable, with what to do."""
    info, api = await engine.call("ask the engine what it is", _info)
    security = " ".join(map(str, info.get("SecurityOptions") or []))
    return EngineFacts(
        version=str(info.get("ServerVersion", "?")),
        api=api,
        driver=str(info.get("Driver", "?")),
        cgroups=f"v{info.get('CgroupVersion', '1')}",
        cpus=int(info.get("NCPU") or 1),
        limits_memory=bool(info.get("MemoryLimit")),
        limits_swap=bool(info.get("SwapLimit")),
        limits_cpu=bool(info.get("CpuCfsQuota")),
        limits_processes=bool(info.get("PidsLimit")),
        seccomp="name=seccomp" in security,
        runtime=str(info.get("DefaultRuntime", "")),
        runtimes=sorted(info.get("Runtimes") or {}),
        rootless="name=rootless" in security,
    )


def _info(api: Any) -> tuple[dict[str, Any], str]:
    return api.info(), str(api._version)


def describe(facts: EngineFacts, link: str) -> dict[str, str]:
    """The same for people."""
    yes = {True: "on", False: "off"}
    return {
        "isolation": f"containers of Docker {facts.version}, runtime {facts.runtime}",
        "engine": facts.version,
        "api": facts.api,
        "storage": facts.driver,
        "link": link,
        "runtime": facts.runtime,
        "control groups": facts.cgroups,
        "seccomp": yes[facts.seccomp],
        "rootless": yes[facts.rootless],
    }
