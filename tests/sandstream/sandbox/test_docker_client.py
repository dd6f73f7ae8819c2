"""The Docker client without an engine: options, states, manifests, the engine that is meant."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import docker
import pytest
from sandstream_bus.wire.sandboxes import GrantSpec, LimitSpec, SandboxSpec

from sandstream.sandbox import Dir, File, Group, Manifest, Permissions, User
from sandstream.sandbox.sandboxes import (
    DockerRemovalService,
    DockerSandboxClient,
    DockerSandboxClientOptions,
    DockerSandboxSession,
    DockerSandboxSessionState,
    UnixLocalSandboxClient,
)
from sandstream.sandbox.sandboxes.docker import endpoint_of
from sandstream.sandbox.session.sandbox_client import BaseSandboxClientOptions
from sandstream.sandbox.session.sandbox_session_state import SandboxSessionState
from sandstream.sandbox.session.specs import sandbox_spec
from sandstream.sandbox.workspace_paths import SandboxPathGrant

ALL = DockerSandboxClientOptions(
    "python:3.13-slim",
    (8000,),
    labels={"team": "blue"},
    runtime="runsc",
    user="app",
    limits={"memory_mb": 512, "processes": None},
    read_only=True,
    platform="linux/arm64",
    pool=2,
    agent=False,
    idle_s=60.0,
)


def spec_of(client: DockerSandboxClient, manifest: Manifest) -> SandboxSpec:
    store: Any = None  # the files of these manifests travel in the message
    settings = client.settings(DockerSandboxClientOptions("image"))
    return asyncio.run(sandbox_spec(manifest, settings, store, provider="docker", node=""))


# --- options --------------------------------------------------------------------------------------


def test_options_are_sent_to_the_provider_without_defaults() -> None:
    client = DockerSandboxClient()
    plain = client.settings(DockerSandboxClientOptions("node:22"))
    assert plain.options == {"image": "node:22"}
    assert (plain.network, plain.ports, plain.limits) == ("host", (), LimitSpec())
    all_of_them = client.settings(ALL)
    assert all_of_them.options == {
        "image": "python:3.13-slim",
        "labels": {"team": "blue"},
        "runtime": "runsc",
        "user": "app",
        "read_only": True,
        "platform": "linux/arm64",
        "pool": 2,
        "agent": False,
    }
    assert all_of_them.ports == (8000,)
    assert all_of_them.idle_s == 60.0
    assert all_of_them.limits == LimitSpec(memory_mb=512, processes=None)


def test_a_container_has_a_network_unless_it_is_told_otherwise() -> None:
    client = DockerSandboxClient()
    closed = DockerSandboxClientOptions("image", network_mode="none")
    assert client.settings(closed).network == "none"
    allowed = client.settings(DockerSandboxClientOptions("image", egress=["pypi.org"]))
    assert (allowed.network, allowed.options["egress"]) == ("none", ["pypi.org"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"exposed_ports": (80,), "network_mode": "none"}, "exposed_ports"),
        ({"network_mode": "host"}, "network_mode"),
        ({"limits": {"ram": 1}}, "ram is unknown"),
        ({"pool": -1}, "pool"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DockerSandboxClientOptions("image", **given)


def test_an_image_is_needed() -> None:
    with pytest.raises(ValueError, match="image"):
        DockerSandboxClientOptions("")
    with pytest.raises(ValueError, match="needs options"):
        asyncio.run(DockerSandboxClient().create())


def test_options_are_found_by_their_type() -> None:
    parsed = BaseSandboxClientOptions.parse({"type": "docker", "image": "x", "labels": {"a": "b"}})
    assert parsed == DockerSandboxClientOptions("x", labels={"a": "b"})
    assert BaseSandboxClientOptions.parse(ALL.model_dump(mode="json")) == ALL


# --- states ---------------------------------------------------------------------------------------


def test_a_state_keeps_what_its_container_is_made_of() -> None:
    client = DockerSandboxClient()
    session = asyncio.run(client.create(options=ALL))
    assert isinstance(session, DockerSandboxSession)
    state = session.state
    assert (state.image, state.container_id, state.network_mode, state.labels) == (
        *("python:3.13-slim", "", None),
        {"team": "blue"},
    )
    stored = client.serialize_session_state(state)
    again = client.deserialize_session_state(stored)
    assert again == state
    assert SandboxSessionState.parse(stored) == state
    resumed = asyncio.run(client.resume(again))
    assert isinstance(resumed, DockerSandboxSession)
    assert resumed.settings == client.settings(ALL)


def test_a_state_of_another_provider_is_refused() -> None:
    local = UnixLocalSandboxClient(isolation="none").new_state()
    with pytest.raises(TypeError, match="DockerSandboxSessionState"):
        asyncio.run(DockerSandboxClient().resume(local))


def test_a_state_of_the_reference_is_read() -> None:
    state = DockerSandboxSessionState.model_validate(
        {
            "type": "docker",
            "session_id": "3c8f3c9e-4c0e-4a5f-8a3e-0d6a3f1c2b4d",
            "snapshot": {"type": "noop", "id": "x"},
            "manifest": {"root": "/workspace"},
            "image": "python:3.12",
            "container_id": "abc",
            "network_mode": "none",
        }
    )
    assert (state.image, state.container_id) == ("python:3.12", "abc")


# --- manifests ------------------------------------------------------------------------------------


def test_users_groups_and_permissions_go_along() -> None:
    dev, web = User(name="dev"), User(name="web")
    group = Group(name="team", users=[dev, web])
    manifest = Manifest(
        users=[dev],
        groups=[group],
        entries={
            "shared": Dir(
                group=group,
                permissions=Permissions.from_str("drwxrwx---"),
                children={"plan.md": File(content=b"plan", group=dev)},
            )
        },
    )
    client = DockerSandboxClient()
    client.check_manifest(manifest)
    spec = spec_of(client, manifest)
    assert spec.options == {
        "image": "image",
        "users": ["dev", "web"],
        "groups": {"team": ["dev", "web"]},
    }
    assert spec.plan.groups == {"shared": "team", "shared/plan.md": "dev"}
    assert [(it.path, it.mode) for it in spec.plan.files] == [
        ("shared", 0o770),
        ("shared/plan.md", 0o755),
    ]


def test_a_grant_without_a_host_path_is_a_path_of_the_container(tmp_path: Path) -> None:
    manifest = Manifest(
        extra_path_grants=(
            SandboxPathGrant(path="/opt/tools", read_only=True),
            SandboxPathGrant(path="/data", host_path=str(tmp_path)),
        )
    )
    client = DockerSandboxClient()
    client.check_manifest(manifest)
    assert spec_of(client, manifest).grants == [
        GrantSpec(path="/opt/tools", read_only=True, inside=True),
        GrantSpec(path="/data", host_path=str(tmp_path.resolve())),
    ]


@pytest.mark.parametrize("path", ["/workspace", "/workspace/data", "/"])
def test_the_host_is_not_mounted_into_the_workspace(path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        grant = SandboxPathGrant(path=path, host_path=str(tmp_path))
        DockerSandboxClient().check_manifest(Manifest(extra_path_grants=(grant,)))


def test_two_grants_cannot_have_one_place(tmp_path: Path) -> None:
    grant = SandboxPathGrant(path="/data", host_path=str(tmp_path))
    with pytest.raises(ValueError, match="several path grants"):
        DockerSandboxClient().check_manifest(Manifest(extra_path_grants=(grant, grant)))


# --- the engine -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "endpoint"),
    [
        ("unix:///run/user/1000/docker.sock", "unix:///run/user/1000/docker.sock"),
        ("tcp://10.0.0.7:2375", "http://10.0.0.7:2375"),
    ],
)
def test_the_engine_of_a_given_client_is_used(given: str, endpoint: str) -> None:
    engine = docker.DockerClient(base_url=given, version="1.41")  # connects on first use
    try:
        assert endpoint_of(engine) == endpoint
        client = DockerSandboxClient(engine)
        assert client.docker_client is engine
        assert client.link.provider == "docker"
    finally:
        engine.close()


def test_the_limits_of_a_removal_service_are_checked_first() -> None:
    with pytest.raises(ValueError, match="positive"):
        DockerRemovalService(max_concurrent_removals=0, max_entry_visits=1, max_cpu_seconds=1)


def test_the_package_is_imported_on_use_only() -> None:
    program = (
        "import sys; sys.modules['docker'] = None\n"
        "from sandstream.sandbox.sandboxes import DockerSandboxClient\n"
        "client = DockerSandboxClient()\n"
        "try: client.docker_client\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("ProviderUnavailableError")
    assert "pip install 'sandstream[docker]'" in done.stdout
