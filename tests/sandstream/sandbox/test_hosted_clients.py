"""The clients of hosted sandboxes without a vendor: options, states, manifests, what is sent."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sandstream_bus.wire.sandboxes import EnvironmentValue, SandboxSpec
from sandstream_providers import registry

from sandstream.extensions import sandbox as hosted
from sandstream.extensions.sandbox import (
    DEFAULT_DAYTONA_WORKSPACE_ROOT,
    DaytonaCloudBucketMountStrategy,
    DaytonaSandboxClient,
    DaytonaSandboxClientOptions,
    DaytonaSandboxResources,
    DaytonaSandboxSession,
    DaytonaSandboxSessionState,
    DaytonaSandboxTimeouts,
    E2BCloudBucketMountStrategy,
    E2BSandboxClient,
    E2BSandboxClientOptions,
    E2BSandboxSession,
    E2BSandboxSessionState,
    E2BSandboxTimeouts,
    E2BSandboxType,
)
from sandstream.sandbox import Manifest
from sandstream.sandbox.entries import S3FilesMount, S3Mount
from sandstream.sandbox.entries.mounts import MountStrategyBase, RcloneMountPattern
from sandstream.sandbox.environment import Environment
from sandstream.sandbox.errors import MountConfigError
from sandstream.sandbox.sandboxes.unix_local import UnixLocalSandboxSessionState
from sandstream.sandbox.session.sandbox_client import BaseSandboxClientOptions
from sandstream.sandbox.session.sandbox_session_state import SandboxSessionState
from sandstream.sandbox.session.settings import SandboxSettings
from sandstream.sandbox.session.specs import sandbox_spec
from sandstream.sandbox.types import User
from sandstream.sandbox.workspace_paths import SandboxPathGrant

ALL_DAYTONA = DaytonaSandboxClientOptions(
    None,
    "python:3.13",
    DaytonaSandboxResources(cpu=2, memory=4),
    {"TOKEN": "t"},
    True,
    100,
    200,
    "mine",
    30,
    DaytonaSandboxTimeouts(fast_op_s=5),
    (8000,),
    600,
    labels={"team": "blue"},
    idle_s=None,
)
ALL_E2B = E2BSandboxClientOptions(
    E2BSandboxType.CODE_INTERPRETER,
    "big",
    900,
    {"team": "blue"},
    {"TOKEN": "t"},
    False,
    False,
    {"fast_op_s": 3},
    True,
    (8000,),
    "snapshot",
    "kill",
    False,
    {"browser": {"key": "k"}},
    idle_s=30.0,
)
CASES = pytest.mark.parametrize(
    ("client", "options", "state_class", "session_class"),
    [
        (DaytonaSandboxClient(), ALL_DAYTONA, DaytonaSandboxSessionState, DaytonaSandboxSession),
        (E2BSandboxClient(), ALL_E2B, E2BSandboxSessionState, E2BSandboxSession),
    ],
    ids=["daytona", "e2b"],
)


def spec_of(settings: SandboxSettings, manifest: Manifest) -> SandboxSpec:
    store: Any = None  # the files of these manifests travel in the message
    return asyncio.run(sandbox_spec(manifest, settings, store, provider="daytona", node=""))


# --- what is sent ---------------------------------------------------------------------------------


def test_options_at_their_defaults_are_not_sent() -> None:
    daytona = DaytonaSandboxClient().settings(DaytonaSandboxClientOptions())
    e2b = E2BSandboxClient().settings(E2BSandboxClientOptions("e2b"))
    for settings in (daytona, e2b):
        assert (settings.options, settings.environment, settings.ports) == ({}, {}, ())
        assert (settings.network, settings.idle_s, settings.keep_paused) == ("host", 120.0, False)
        assert settings.grants_inside


def test_all_options_of_daytona_are_sent() -> None:
    settings = DaytonaSandboxClient().settings(ALL_DAYTONA)
    assert settings.options == {
        "image": "python:3.13",
        "resources": {"cpu": 2, "memory": 4},
        "name": "mine",
        "auto_stop_interval": 30,
        "create_timeout": 100,
        "start_timeout": 200,
        "url_ttl_s": 600,
        "labels": {"team": "blue"},
    }
    assert (settings.environment, settings.ports) == ({"TOKEN": "t"}, (8000,))
    assert (settings.network, settings.idle_s, settings.keep_paused) == ("host", None, True)


def test_a_snapshot_is_stronger_than_an_image_and_has_its_own_size() -> None:
    options = DaytonaSandboxClientOptions("base", "python", DaytonaSandboxResources(cpu=2))
    assert DaytonaSandboxClient().settings(options).options == {"snapshot": "base"}


def test_all_options_of_e2b_are_sent() -> None:
    settings = E2BSandboxClient().settings(ALL_E2B)
    assert settings.options == {
        "sandbox_type": "e2b_code_interpreter",
        "template": "big",
        "timeout": 900,
        "metadata": {"team": "blue"},
        "secure": False,
        "allow_internet_access": False,
        "workspace_persistence": "snapshot",
        "on_timeout": "kill",
        "auto_resume": False,
        "mcp": {"browser": {"key": "k"}},
    }
    assert (settings.environment, settings.ports) == ({"TOKEN": "t"}, (8000,))
    assert (settings.network, settings.idle_s, settings.keep_paused) == ("none", 30.0, True)


def test_the_environment_is_for_commands_and_the_manifests_own_is_stronger() -> None:
    options = DaytonaSandboxClientOptions(env_vars={"A": "option", "B": "option"})
    manifest = Manifest(environment=Environment(value={"B": "manifest"}))
    spec = spec_of(DaytonaSandboxClient().settings(options), manifest)
    assert spec.environment == {
        "A": EnvironmentValue(value="option"),
        "B": EnvironmentValue(value="manifest"),
    }
    assert "option" not in json.dumps(spec.options)


def test_a_path_grant_is_a_path_of_the_box() -> None:
    manifest = Manifest(extra_path_grants=(SandboxPathGrant(path="/opt/tools"),))
    client = DaytonaSandboxClient()
    client.check_manifest(manifest)
    (grant,) = spec_of(client.settings(DaytonaSandboxClientOptions()), manifest).grants
    assert (grant.inside, grant.host_path) == (True, "")


@pytest.mark.parametrize("wrong", ["nothing", "E2B", ""])
def test_an_unknown_kind_of_e2b_sandbox_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="sandbox_type"):
        E2BSandboxClientOptions(wrong)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (lambda: DaytonaSandboxClientOptions(create_timeout=0), "create_timeout"),
        (lambda: DaytonaSandboxClientOptions(auto_stop_interval=-1), "auto_stop_interval"),
        (lambda: DaytonaSandboxClientOptions(timeouts={"fast_op_s": 0}), "fast_op_s"),
        (lambda: DaytonaSandboxClientOptions(idle_s=-1), "idle_s"),
        (lambda: E2BSandboxClientOptions("e2b", timeout=0), "timeout"),
        (lambda: E2BSandboxClientOptions("e2b", on_timeout="sleep"), "on_timeout"),  # type: ignore[arg-type]
        (
            lambda: E2BSandboxClientOptions("e2b", workspace_persistence="zip"),  # type: ignore[arg-type]
            "workspace_persistence",
        ),
    ],
)
def test_wrong_options_are_refused(options: Any, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        options()


def test_only_e2b_needs_options() -> None:
    with pytest.raises(ValueError, match="needs options"):
        asyncio.run(E2BSandboxClient().create())
    client = DaytonaSandboxClient()
    assert client.settings(None) == client.settings(DaytonaSandboxClientOptions())
    state = client.new_state()
    assert client.settings_of(state, None) == client.settings(None)


# --- states ---------------------------------------------------------------------------------------


@CASES
def test_a_state_has_all_options_and_survives_as_json(
    client: Any, options: Any, state_class: Any, session_class: Any
) -> None:
    state = client.new_state(options=options)
    assert type(state) is state_class and client.session_class is session_class
    assert client.settings_of(state, None) == client.settings(options)
    state.note_box("v-17")
    saved = state_class.model_validate_json(state.model_dump_json(indent=2))
    assert saved == state and saved.sandbox_id == "v-17"
    assert SandboxSessionState.parse(json.loads(state.model_dump_json())) == state
    assert client.deserialize_session_state(client.serialize_session_state(state)) == state
    assert BaseSandboxClientOptions.parse(options.model_dump()) == options


@CASES
def test_the_name_on_the_bus_is_not_the_vendors_id(
    client: Any, options: Any, state_class: Any, session_class: Any
) -> None:
    state = client.new_state(options=options)
    assert (state.sandbox_id, state.bus_name) == ("", f"s-{state.session_id.hex}")
    session = client.session_of(state, options)
    state.note_box("v-17")
    state.note_box("")
    assert (session.sandbox_id, session.bus_name) == ("v-17", session.remote.sandbox)
    state.rename("other")
    assert (state.sandbox_id, state.bus_name) == ("", "other")
    named = client.new_state(options=options, sandbox_id="r-1-coder")
    assert (named.sandbox_id, named.bus_name) == ("", "r-1-coder")


def test_a_state_of_the_agents_sdk_can_be_read() -> None:
    state = DaytonaSandboxSessionState.model_validate(
        {
            "type": "daytona",
            "session_id": "3e155189-f6bd-4cc7-8f2a-9e8141e7ab77",
            "snapshot": {"type": "noop", "id": "x"},
            "manifest": {"root": DEFAULT_DAYTONA_WORKSPACE_ROOT},
            "sandbox_id": "8e1f",
            "base_env_vars": {"A": "1"},
            "pause_on_exit": True,
        }
    )
    assert (state.sandbox_id, state.bus_name) == ("8e1f", "s-3e155189f6bd4cc78f2a9e8141e7ab77")


def test_states_of_other_providers_are_named_as_before() -> None:
    state = UnixLocalSandboxSessionState.model_validate(
        {"snapshot": {"type": "noop", "id": "x"}, "manifest": {}, "sandbox_id": "s-1"}
    )
    assert state.bus_name == state.sandbox_id == "s-1"
    state.note_box("v-17")
    assert state.sandbox_id == "s-1"
    assert "sandbox_name" not in state.model_dump()


def test_a_state_belongs_to_its_provider() -> None:
    state = E2BSandboxClient().new_state(options=E2BSandboxClientOptions("e2b"))
    with pytest.raises(TypeError, match="needs a DaytonaSandboxSessionState"):
        asyncio.run(DaytonaSandboxClient().resume(state))


# --- manifests ------------------------------------------------------------------------------------


def test_the_root_of_a_session_without_a_manifest() -> None:
    daytona = DaytonaSandboxClient().new_state(options=DaytonaSandboxClientOptions())
    assert daytona.manifest.root == DEFAULT_DAYTONA_WORKSPACE_ROOT == "/home/daytona/workspace"
    e2b = E2BSandboxClient().new_state(options=E2BSandboxClientOptions("e2b"))
    assert e2b.manifest.root == "/workspace"


@pytest.mark.parametrize("client", [DaytonaSandboxClient(), E2BSandboxClient()])
def test_manifests_that_a_vendor_cannot_support(client: Any) -> None:
    grant = SandboxPathGrant(path="/data", host_path="/srv/data")
    with pytest.raises(ValueError, match="shows /srv/data of this machine, which a sandbox at"):
        client.check_manifest(Manifest(extra_path_grants=(grant,)))
    client.check_manifest(Manifest(users=[User(name="app")]))  # the box itself decides


@pytest.mark.parametrize(
    ("strategy", "name", "client"),
    [
        (DaytonaCloudBucketMountStrategy, "daytona_cloud_bucket", DaytonaSandboxClient()),
        (E2BCloudBucketMountStrategy, "e2b_cloud_bucket", E2BSandboxClient()),
    ],
)
def test_buckets_are_described_but_not_mounted_yet(strategy: Any, name: str, client: Any) -> None:
    mount = S3Mount(bucket="data", mount_strategy=strategy())
    assert strategy().pattern == RcloneMountPattern(mode="fuse")
    saved = json.loads(mount.model_dump_json())["mount_strategy"]
    assert saved["type"] == name
    assert MountStrategyBase.parse(saved) == strategy()
    with pytest.raises(MountConfigError, match="s3_files_mount cannot use RcloneMountPattern"):
        S3FilesMount(file_system_id="fs-1", mount_strategy=strategy())
    with pytest.raises(MountConfigError, match=f"the {client.backend_id} provider cannot make"):
        client.check_manifest(Manifest(entries={"data": mount}))


# --- clients --------------------------------------------------------------------------------------


def test_a_client_can_be_closed_and_used_as_a_context() -> None:
    async def story() -> None:
        async with DaytonaSandboxClient("key", "http://127.0.0.1:1") as client:
            assert isinstance(client, DaytonaSandboxClient)
        await client.close()

    asyncio.run(story())


def test_the_key_is_not_shown() -> None:
    client = DaytonaSandboxClient(api_key="very-secret")
    assert "very-secret" not in repr(client) + repr(client.link)
    settings = registry.ProviderSettings(home=Path("/h"), api_key="very-secret")
    assert "very-secret" not in repr(settings) + str(settings)


def test_the_registry_knows_both() -> None:
    for name, client in (("daytona", DaytonaSandboxClient), ("e2b", E2BSandboxClient)):
        entry = registry.find(name)
        assert not entry.owns_boxes and not entry.needs_options
        assert isinstance(registry.new_client(name), client)
        options = registry.load(entry.client_options).model_validate(entry.client_defaults)
        assert options.type == client.backend_id == name
        assert entry.lacks_key({}) and not entry.lacks_key({entry.key_variables[0]: "k"})
    assert not registry.LOCAL.lacks_key({})


def test_nothing_of_a_vendor_is_imported() -> None:
    code = (
        "import sys; from sandstream.extensions.sandbox import *; "
        "from sandstream.extensions.sandbox.daytona import DaytonaSandboxClient; "
        "from sandstream.extensions.sandbox.e2b import E2BSandboxClient; "
        "DaytonaSandboxClient(); E2BSandboxClient(); "
        "print([it for it in ('daytona', 'e2b', 'docker') if it in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_name_that_does_not_exist() -> None:
    assert "E2BSandboxClient" in dir(hosted)
    with pytest.raises(AttributeError, match="has no attribute 'ModalSandboxClient'"):
        _ = hosted.ModalSandboxClient


def test_time_limits_have_the_defaults_of_the_agents_sdk() -> None:
    assert DaytonaSandboxTimeouts().model_dump() == {
        "exec_timeout_unbounded_s": 86400,
        "keepalive_s": 10,
        "cleanup_s": 30,
        "fast_op_s": 30,
        "file_upload_s": 1800,
        "file_download_s": 1800,
        "workspace_tar_s": 300,
    }
    assert E2BSandboxTimeouts().model_dump() == {
        "exec_timeout_unbounded_s": 86400,
        "keepalive_s": 5,
        "cleanup_s": 30,
        "fast_op_s": 10,
        "file_upload_s": 30,
        "snapshot_tar_s": 60,
    }
