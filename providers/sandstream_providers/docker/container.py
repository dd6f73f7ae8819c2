"""The container of a box: what it is made of, and how little it may do.

By default it has no capabilities, cannot gain any, runs under the engine's seccomp profile as an
ordinary user, sees nothing of the host but its grants, and has no network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from sandstream_providers.box.start import start_file_command
from sandstream_providers.docker.facts import EngineFacts
from sandstream_providers.docker.folders import START, Folders
from sandstream_providers.docker.images import ImageFacts
from sandstream_providers.docker.labels import COMPANION, POOL, labels_of
from sandstream_providers.docker.options import DockerOptions
from sandstream_providers.grants import AGENT_FOLDER, check_grants, check_root
from sandstream_providers.interface import BoxSpec, Grant, Limits, ProviderError

AGENT = f"{AGENT_FOLDER}/agent"
RUN = f"{AGENT_FOLDER}/run"
PROXY = f"{AGENT_FOLDER}/proxy"
AGENT_COPY = f"{RUN}/agent"
"""Where the agent lies if it cannot be mounted."""
STATE = f"{RUN}/state"
JOBS = f"{STATE}/jobs"
OWN_ID = 1000
"""The user and group of a box whose image would be root."""
STOP_SIGNAL = "SIGKILL"
"""Nothing in a box prepares for its end, and a first process gets no other signal by default: an
engine that shuts down would wait ten seconds for it.
"""
STAY = "while :; do sleep 3600 & wait $!; done"
"""The first process of a box without an agent. It collects processes that lost their parent."""
ROOT_CAPS = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "KILL"]
"""What an agent needs that starts commands as several users."""
_AGENT_TASKS = 5
"""The agent and its threads count too."""
_SCRIPT_TASKS = 256
"""Without an agent, the scripts that end commands must find room beside them."""
_AGENT_MB = 64
_MOST_PIDS = 4_194_304
"""The kernel takes no more."""
_LEAST_MEMORY_MB = 6
"""The smallest memory limit that engines accept."""
_MB = 1024 * 1024
_TMP_MB = 1024
_SOCKETS = (
    *("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"),
    *("/run/podman/podman.sock", "/run/crio/crio.sock"),
)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides what a container looks like."""

    spec: BoxSpec
    options: DockerOptions
    image: ImageFacts
    engine: EngineFacts
    has_agent: bool
    shared: bool
    """Does the engine see the files of this machine, so that it can mount them?"""
    quota: bool
    """The engine can limit the disk of a container."""
    pool: bool = False
    """It is to wait for its box."""

    @property
    def user(self) -> tuple[int, int]:
        if self.options.has_users:
            return 0, 0
        if self.image.uid == 0 and not self.options.user:
            return OWN_ID, OWN_ID
        return self.image.uid, self.image.gid

    @property
    def in_memory(self) -> bool:
        """The files live only as long as the box's processes."""
        return self.spec.limits.disk_mb is not None and not (
            self.quota and not self.options.read_only
        )

    @property
    def ports(self) -> list[int]:
        """The ports that the engine itself publishes; the agent forwards all others."""
        forwards = self.has_agent and self.shared
        return [] if forwards or self.spec.network == "none" else self.spec.ports


def check(plan: Plan, home: Path, engine_url: str) -> None:
    """Raises ProviderError for what no container of ours may have."""
    check_root(plan.spec.root)
    check_grants(plan.spec.grants, home)
    sockets = [*_SOCKETS, engine_url.removeprefix("unix://")]
    for grant in plan.spec.grants:
        real = Path(grant.host_path).resolve()
        for socket in filter(None, sockets):
            if Path(socket).resolve().is_relative_to(real):
                raise ProviderError(
                    f"{grant.host_path} cannot be granted: it holds the socket {socket}. "
                    "Access to an engine means the rights of root on its machine"
                )


def check_options(options: DockerOptions, engine: EngineFacts) -> None:
    """Raises ProviderError for what this engine does not have."""
    if options.runtime and options.runtime not in engine.runtimes:
        raise ProviderError(
            f"the engine has no runtime {options.runtime!r}; it has: {', '.join(engine.runtimes)}"
        )


def create(api: Any, plan: Plan, folders: Folders, name: str, volumes_of: str = "") -> str:
    """Ask the engine for the container. Returns its id.

    ``volumes_of``: a container that has its volumes already.
    """
    spec, options = plan.spec, plan.options
    more = {"platform": options.platform} if options.platform else {}
    made = api.create_container(
        plan.image.id,
        name=name,
        entrypoint=entry(plan),
        command=[],
        user="{}:{}".format(*plan.user),
        labels=labels_of(spec, options.labels) | ({POOL: spec.key} if plan.pool else {}),
        environment={"HOME": spec.root},
        working_dir="/",
        hostname="sandbox",
        ports=plan.ports,
        healthcheck={"test": ["NONE"]},
        stop_signal=STOP_SIGNAL,
        host_config=api.create_host_config(**_host_config(plan, folders, volumes_of)),
        **more,
    )
    return str(made["Id"])


def create_keeper(api: Any, plan: Plan, name: str) -> str:
    """A container with the volumes of another, and a root that can be prepared. It never runs. Its
    labels let the node find it if this process dies.
    """
    key = keeper_key(plan.spec.key)
    labels = labels_of(msgspec.structs.replace(plan.spec, key=key), {})
    labels[COMPANION] = plan.spec.key
    config = {"network_mode": "none", "mounts": [_volume(it) for it in _volumes(plan)]}
    made = api.create_container(
        plan.image.id,
        name=name,
        entrypoint=["/bin/sh"],
        command=[],
        labels=labels,
        host_config=api.create_host_config(**config),
    )
    return str(made["Id"])


def proxy_key(key: str) -> str:
    """Of the proxy beside a box."""
    return f"{key[:121]}.proxy"


def keeper_key(key: str) -> str:
    """Not longer than a key may be."""
    return f"{key[:120]}.keeper"


def entry(plan: Plan) -> list[str]:
    if not plan.has_agent:
        return ["/bin/sh", "-c", STAY]
    agent = AGENT if plan.shared else AGENT_COPY
    return start_file_command(agent=agent, file=f"{RUN}/{START}", python=plan.image.python)


def _host_config(plan: Plan, folders: Folders, volumes_of: str) -> dict[str, Any]:
    spec, options, limits = plan.spec, plan.options, plan.spec.limits
    config: dict[str, Any] = {
        "network_mode": "none" if spec.network == "none" else "bridge",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "mounts": [
            *_binds(plan, folders),
            *(_volume(it) for it in _volumes(plan) if not volumes_of),
        ],
        "volumes_from": [volumes_of] if volumes_of else None,
        "ulimits": _ulimits(limits),
        "read_only": options.read_only,
        "tmpfs": _tmpfs(plan),
        "runtime": options.runtime or None,
        "port_bindings": dict.fromkeys(plan.ports, ("127.0.0.1", None)),
        "log_config": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
        **_kernel_limits(plan),
    }
    if options.has_users:
        config["cap_add"] = ROOT_CAPS
    if limits.disk_mb is not None and not plan.in_memory:
        config["storage_opt"] = {"size": f"{limits.disk_mb}M"}
    return {name: value for name, value in config.items() if value not in (None, [], {})}


def _kernel_limits(plan: Plan) -> dict[str, Any]:
    """The limits that the kernel enforces. One above the engine's maximum becomes that maximum."""
    limits, engine = plan.spec.limits, plan.engine
    found: dict[str, Any] = {}
    if limits.memory_mb is not None and engine.limits_memory:
        in_memory = limits.disk_mb if plan.in_memory and limits.disk_mb else 0
        size_mb = max(limits.memory_mb, _LEAST_MEMORY_MB) + in_memory + _AGENT_MB
        found["mem_limit"] = size_mb * _MB
        if engine.limits_swap:
            found["memswap_limit"] = size_mb * _MB
    if limits.cpus is not None and engine.limits_cpu:
        found["nano_cpus"] = int(min(max(limits.cpus, 0.01), engine.cpus) * 1e9)
    if limits.processes is not None and engine.limits_processes:
        more = _AGENT_TASKS if plan.has_agent else _SCRIPT_TASKS
        found["pids_limit"] = min(limits.processes + more, _MOST_PIDS)
    return found


def _ulimits(limits: Limits) -> list[dict[str, Any]]:
    """Limits below the engine's own: an engine may refuse a container with a higher one."""
    found = [{"Name": "core", "Soft": 0, "Hard": 0}]
    if limits.file_mb is not None:
        size = limits.file_mb * _MB
        found.append({"Name": "fsize", "Soft": size, "Hard": size})
    return found


def _tmpfs(plan: Plan) -> dict[str, str]:
    scratch = ["/tmp", "/var/tmp", "/run"] if plan.options.read_only else []
    found: dict[str, str] = dict.fromkeys(scratch, f"mode=1777,size={_TMP_MB}m")
    if plan.in_memory:
        uid, gid = plan.user
        size_mb = plan.spec.limits.disk_mb
        found[plan.spec.root] = f"mode=0755,uid={uid},gid={gid},size={size_mb}m,exec"
    return found


def _binds(plan: Plan, folders: Folders) -> list[dict[str, Any]]:
    key = plan.spec.key
    mounts = [bind(it.host_path, it.path, read_only=it.read_only) for it in _real(plan.spec)]
    if not plan.has_agent or not plan.shared:
        return mounts
    if plan.options.egress:
        mounts.append(bind(str(folders.proxy(key)), PROXY, read_only=True))
    return [
        bind(str(folders.agent(key)), AGENT, read_only=True),
        bind(str(folders.run(key)), RUN, read_only=False),
        *mounts,
    ]


def _volumes(plan: Plan) -> list[str]:
    """Where anonymous volumes lie. The root is one where nothing else could be written."""
    own = RUN if plan.has_agent and not plan.shared else STATE
    return [own, plan.spec.root] if plan.options.read_only and not plan.in_memory else [own]


def _real(spec: BoxSpec) -> list[Grant]:
    return [
        msgspec.structs.replace(it, host_path=str(Path(it.host_path).resolve()))
        for it in spec.grants
    ]


def bind(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}


def _volume(target: str) -> dict[str, Any]:
    """An anonymous volume: the engine removes it with its container."""
    return {"Type": "volume", "Target": target}
