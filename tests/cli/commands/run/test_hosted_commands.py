"""The command line with sandboxes at a vendor: with its key, with a wrong one, without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.cli_process import Cli
from vendors.process import VendorServer
from vendors.shared import shared

pytestmark = pytest.mark.timeout(180)  # many commands, on a machine that may be busy

VENDORS = pytest.mark.parametrize("vendor", ["daytona", "e2b"])
KEYS = {"daytona": "DAYTONA_API_KEY", "e2b": "E2B_API_KEY"}
WRONG = {"daytona": "dtn_wrong", "e2b": "e2b_" + "0" * 40}

_DEPLOYED = """
from sandstream import RunConfig
from sandstream.extensions.sandbox import {client}, {options}
from sandstream.sandbox import SandboxAgent, SandboxRunConfig

coder = SandboxAgent(name="coder", instructions="Work.", model="gpt-5")
run_config = RunConfig(sandbox=SandboxRunConfig(client={client}(), options={options}({kind})))
"""
DEPLOYED = {
    "daytona": _DEPLOYED.format(
        client="DaytonaSandboxClient", options="DaytonaSandboxClientOptions", kind=""
    ),
    "e2b": _DEPLOYED.format(
        client="E2BSandboxClient", options="E2BSandboxClientOptions", kind="'e2b'"
    ),
}


def with_key(cli: Cli, vendor: str) -> VendorServer:
    """The environment of the commands leads to the local server."""
    server = shared(vendor)
    cli.env |= server.env
    cli.env["COLUMNS"] = "200"
    return server


def finding(cli: Cli, vendor: str) -> dict[str, Any]:
    """What doctor says of a vendor."""
    (found,) = [it for it in cli("doctor", "--json").lines if it["name"] == vendor]
    return dict(found)


@VENDORS
def test_a_run_at_a_vendor(cli: Cli, coder: Path, tmp_path: Path, vendor: str) -> None:
    server = with_key(cli, vendor)
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("from the workspace\n")
    command = ("run", str(coder), "look around", "--sandbox", vendor, "--workspace", ".")
    process = cli.start(*command, "--json", cwd=work)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "from the workspace" in err
    assert server.boxes() == [], "the run removes its box"
    (found,) = cli.here("sandboxes", "--json").lines
    assert (found["provider"], found["state"]) == (vendor, "stopped")
    shown = cli.here("sandboxes", "show", found["sandbox"]).out
    assert "network   the vendor's" in shown
    files = cli.here("artifacts", "ls", found["run_id"], "--json").lines
    assert [it["path"] for it in files] == ["a.txt"]
    said = cli("sandboxes", "exec", found["sandbox"], "--", "cat", "a.txt")
    assert (said.code, said.out) == (0, "from the workspace\n")
    assert cli("sandboxes", "rm", found["sandbox"], "--yes").code == 0
    assert server.boxes() == []
    assert finding(cli, vendor)["state"] == "ok"


@VENDORS
def test_an_actor_at_a_vendor_serves_deployed_agents(cli: Cli, tmp_path: Path, vendor: str) -> None:
    server = with_key(cli, vendor)
    coder = tmp_path / "coder.py"
    coder.write_text(DEPLOYED[vendor])
    with (
        cli.service("actor", "sandbox", "--provider", vendor) as actor,
        cli.service("actor", "harness"),
        cli.service("worker", str(coder)),
    ):
        assert actor.ready["node"] == "shared"
        done = cli("submit", "coder", "write files", "--wait", "--timeout", "60", "--key", "w")
        assert (done.code, done.out) == (0, "Written.\n"), done
        (found,) = cli.here("sandboxes", "--json").lines
        assert (found["provider"], found["node"]) == (vendor, "shared")
        assert cli.here("artifacts", "get", "w", "out/a.txt", "-o", "-").out == "hello"
    assert server.boxes() == []


@VENDORS
@pytest.mark.parametrize("key", ["none", "wrong"])
def test_a_key_that_does_not_work(cli: Cli, coder: Path, vendor: str, key: str) -> None:
    if key == "wrong":
        with_key(cli, vendor)
        cli.env[KEYS[vendor]] = WRONG[vendor]
    for command in (
        ("run", str(coder), "look around", "--sandbox", vendor),
        ("actor", "sandbox", "--provider", vendor),
    ):
        done = cli(*command)
        assert done.code == 1 and done.out == ""
        (line,) = done.err.splitlines()
        assert f"provider '{vendor}' is not available" in line and KEYS[vendor] in line
        assert WRONG[vendor] not in line, "a key is not shown"
    found = finding(cli, vendor)
    if key == "none":
        assert found["state"] == "ok" and KEYS[vendor] in found["found"]
    else:
        assert found["state"] == "problem" and KEYS[vendor] in found["todo"]
        assert WRONG[vendor] not in str(found)


@VENDORS
def test_a_vendor_that_does_not_answer(cli: Cli, coder: Path, vendor: str) -> None:
    with_key(cli, vendor)
    cli.env[f"{vendor.upper()}_API_URL"] = "http://127.0.0.1:9"
    found = finding(cli, vendor)
    assert found["state"] == "warning" and "http://127.0.0.1:9" in found["found"]
    done = cli("actor", "sandbox", "--provider", vendor)
    assert done.code == 1
    (line,) = done.err.splitlines()
    assert f"provider '{vendor}' is not available" in line and "127.0.0.1:9" in line
