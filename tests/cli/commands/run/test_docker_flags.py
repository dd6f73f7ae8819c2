"""``sandstream run`` with ``--sandbox`` and its flags: what is asked for, and what is wrong."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from sandstream.cli.commands.run.provider import with_provider
from sandstream.cli.main import main
from sandstream.extensions.sandbox import (
    DaytonaSandboxClient,
    DaytonaSandboxClientOptions,
    E2BSandboxClient,
    E2BSandboxClientOptions,
)
from sandstream.sandbox.config import SandboxRunConfig
from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.sandboxes import (
    DockerSandboxClient,
    DockerSandboxClientOptions,
    UnixLocalSandboxClient,
    UnixLocalSandboxClientOptions,
)


def flags(**given: Any) -> argparse.Namespace:
    nothing: dict[str, Any] = {
        "sandbox": None,
        "image": None,
        "template": None,
        "port": [],
        "network": False,
    }
    return argparse.Namespace(**{**nothing, **given})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--image", "node:22"], "--image is for containers, not for local: add --sandbox docker"),
        (["--sandbox", "local", "--image", "node:22"], "--image is for containers"),
        (["--sandbox", "docker"], "--sandbox docker needs --image IMAGE"),
        (["--sandbox", "e2b", "--image", "x"], "--image is for containers, not for e2b"),
        (
            ["--sandbox", "docker", "--template", "x"],
            "--template is for sandboxes at a vendor, not for docker: add --sandbox e2b",
        ),
        (["--sandbox", "cloud"], "there is no sandbox provider 'cloud'; known: local, docker"),
        (
            ["--sandbox", "docker", "--image", "x", "--port", "80"],
            "--port: a docker sandbox without network has no ports: add --network",
        ),
    ],
)
def test_wrong_flags_are_told_before_anything_starts(
    coder: Path,
    tmp_path: Path,
    given: list[str],
    why: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SANDSTREAM_HOME", str(tmp_path / "home"))
    assert main(["run", str(coder), "hi", *given]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1
    assert why in captured.err
    assert not (tmp_path / "home").exists()


def test_an_agent_without_a_sandbox_takes_no_image(
    app: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(app), "hi", "--sandbox", "docker", "--image", "x"]) == 2
    assert "--sandbox, --image: the agent 'assistant' is no" in capsys.readouterr().err


def test_a_container_of_the_command_line_has_no_network_unless_asked() -> None:
    closed = with_provider(flags(sandbox="docker", image="node:22"), None)
    assert isinstance(closed.client, DockerSandboxClient)
    assert closed.options == DockerSandboxClientOptions("node:22", network_mode="none")
    opened = with_provider(
        flags(sandbox="docker", image="node:22", port=[80, 81, 80], network=True), None
    )
    assert opened.options == DockerSandboxClientOptions("node:22", (80, 81))


def test_flags_change_the_options_of_the_app() -> None:
    client = DockerSandboxClient()
    options = DockerSandboxClientOptions("node:22", (80,), limits={"memory_mb": 64})
    configured = SandboxRunConfig(client=client, options=options)
    assert with_provider(flags(), configured) == configured
    changed = with_provider(flags(sandbox="docker", image="node:24", port=[90]), configured)
    assert changed.client is client
    assert changed.options == DockerSandboxClientOptions(
        "node:24", (80, 90), limits={"memory_mb": 64}
    )


def test_another_provider_keeps_the_rest_of_the_apps_configuration() -> None:
    manifest = Manifest(root="/code")
    configured = SandboxRunConfig(
        client=UnixLocalSandboxClient(isolation="none"),
        options=UnixLocalSandboxClientOptions(exposed_ports=(80,)),
        manifest=manifest,
    )
    found = with_provider(flags(sandbox="docker", image="node:22"), configured)
    assert isinstance(found.client, DockerSandboxClient)
    assert found.options == DockerSandboxClientOptions("node:22", network_mode="none")
    assert found.manifest == manifest


def test_sandboxes_of_this_machine_work_as_before() -> None:
    assert with_provider(flags(), None).options is None
    found = with_provider(flags(port=[80], network=True), None)
    assert found.options == UnixLocalSandboxClientOptions(exposed_ports=(80,), network="host")


def test_sandboxes_at_a_vendor_need_no_more_than_their_name() -> None:
    e2b = with_provider(flags(sandbox="e2b"), None)
    assert e2b.options == E2BSandboxClientOptions("e2b")
    daytona = with_provider(flags(sandbox="daytona"), None)
    assert isinstance(daytona.client, DaytonaSandboxClient)
    assert daytona.options is None, "its client has defaults"


def test_a_template_is_what_the_vendor_calls_so() -> None:
    e2b = with_provider(flags(sandbox="e2b", template="big", port=[80]), None)
    assert e2b.options == E2BSandboxClientOptions("e2b", template="big", exposed_ports=(80,))
    daytona = with_provider(flags(sandbox="daytona", template="big"), None)
    assert daytona.options == DaytonaSandboxClientOptions(sandbox_snapshot_name="big")
    image = with_provider(flags(sandbox="daytona", image="node:22", network=True), None)
    assert image.options == DaytonaSandboxClientOptions(image="node:22")


def test_a_flag_changes_the_options_of_the_app() -> None:
    options = E2BSandboxClientOptions("e2b_code_interpreter", timeout=900)
    configured = SandboxRunConfig(client=E2BSandboxClient(), options=options)
    changed = with_provider(flags(template="big"), configured)
    assert changed.options == options.model_copy(update={"template": "big"})
    assert changed.client is configured.client
