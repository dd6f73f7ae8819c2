"""A provider of another package, installed beside us and found through its entry point."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.nats_server import NatsServer
from support.waiting import until

TOY = Path(__file__).parents[1] / "contract" / "toy"

USE = """
import asyncio, json, sys
from pathlib import Path
from sandstream_providers import registry
from sandstream_providers.interface import BoxSpec, ExecSpec

names = registry.names()
early = "sandstream_toy" in sys.modules
entry = registry.find("toy")
host_early = "sandstream_toy.host" in sys.modules

async def main():
    provider = registry.make("toy", registry.ProviderSettings(home=Path(sys.argv[1])))
    spec = BoxSpec(key="one", labels={"owner": "me"})
    box = await provider.create(spec)
    output = await box.run("op-1", ExecSpec(argv=["echo", "hello"], cwd=box.root))
    listed = [info.key for info in await provider.list_owned("me")]
    await provider.delete("one")
    await provider.close()
    settings = registry.ProviderSettings(home=Path(sys.argv[1]))
    [finding] = await registry.examine("toy", registry.Question(settings=settings))
    return output.stdout.decode(), listed, [finding.state, finding.found]

print(json.dumps([names, early, host_early, entry.owns_boxes, *asyncio.run(main())]))
"""

OVER_THE_BUS = """
import asyncio, msgspec
from sandstream_bus.wire.sandboxes import Close, Exec, Executed, Open, SandboxRequest
from sandstream_bus.wire.sandbox_specs import SandboxSpec
from sandstream_bus.logs.sandboxes import new_op
from sandstream import Client

async def main():
    async with await Client.connect() as client:
        async def ask(action):
            request = SandboxRequest(op=new_op(), action=action)
            reply = await client.bus.sandboxes.request("probe", request, provider="toy")
            assert reply.error is None, reply.error
            return bytes(reply.result)

        await ask(Open(spec=SandboxSpec(provider="toy")))
        done = msgspec.json.decode(await ask(Exec(argv=["echo", "over the bus"])), type=Executed)
        print((done.stdout + done.stderr).decode().strip())
        await ask(Close(delete=True))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the toy's package, as pip installs it."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps"]
    subprocess.run([*pip, "--target", str(target), str(TOY)], check=True, timeout=120)
    return target


def python(site: Path | None, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    path = {"PYTHONPATH": str(site)} if site is not None else {}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **path, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.timeout(180)
def test_it_is_found_and_used_through_its_entry_point(site: Path, tmp_path: Path) -> None:
    done = python(site, "-c", USE, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        ["local", "docker", "daytona", "e2b", "toy"],
        False,  # names are known without an import
        False,  # nor does its entry import the code that makes boxes
        True,
        "hello\n",
        ["one"],
        ["ok", "toy: isolation: none"],
    ]


@pytest.mark.timeout(180)
def test_the_actor_serves_the_provider_that_was_asked_for(
    site: Path, tmp_path: Path, nats_server: NatsServer
) -> None:
    nats_server.set_up()
    env = {
        **os.environ,
        "PYTHONPATH": str(site),
        "NATS_URL": nats_server.url,
        "SANDSTREAM_HOME": str(tmp_path),
    }
    actor = [sys.executable, "-m", "sandstream.cli.main", "actor", "sandbox", "--provider", "toy"]
    with subprocess.Popen([*actor, "--json"], env=env, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            assert ready["sandboxes"] == {"isolation": "none"}
            urls = {"NATS_URL": nats_server.url, "SANDSTREAM_HOME": str(tmp_path)}
            done = python(site, "-c", OVER_THE_BUS, **urls)
            assert (done.stdout, done.returncode) == ("over the bus\n", 0), done.stderr
            boxes = tmp_path / "toy"  # the actor removes them after its reply
            asyncio.run(until(lambda: not [*boxes.glob("*/box.json")], what="no box is left"))
        finally:
            process.terminate()


def test_without_its_package_there_is_no_such_provider() -> None:
    code = "from sandstream_providers import registry; registry.find('toy')"
    done = python(None, "-c", code)
    assert done.returncode == 1
    assert "there is no sandbox provider 'toy'; known are: local" in done.stderr


BROKEN = {
    "a module that is not there": ("bad = nowhere:ENTRY", "cannot be loaded: No module named"),
    "no entry": ("bad = json:dumps", "must be a ProviderEntry with that name"),
    "another name": ("bad = sandstream_providers.registry:LOCAL", "must be a ProviderEntry"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_package_is_named(case: str, tmp_path: Path) -> None:
    line, why = BROKEN[case]
    info = tmp_path / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[sandstream.providers]\n{line}\n")
    done = python(tmp_path, "-c", "from sandstream_providers import registry; registry.find('bad')")
    assert "the sandbox provider 'bad' of broken" in done.stderr
    assert why in done.stderr


def test_a_package_cannot_take_the_name_of_one_of_ours(tmp_path: Path) -> None:
    info = tmp_path / "thief-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thief\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[sandstream.providers]\nlocal = json:dumps\n")
    code = "from sandstream_providers import registry; print(registry.find('local').factory)"
    done = python(tmp_path, "-c", code)
    assert done.stdout.strip() == "sandstream_providers.local.provider:make_local"


HOSTED = """
from sandstream_providers.registry import ProviderEntry
ENTRY = ProviderEntry(name="hosted", factory="nowhere:make", owns_boxes=False)
"""
NODES = """
import asyncio, sys
from pathlib import Path
from sandstream._run.sandbox_host import _node

for own in (False, True):
    print(asyncio.run(_node("hosted", Path(sys.argv[1]), "required", own=own)))
"""


def test_replicas_of_a_hosted_provider_share_one_node(tmp_path: Path) -> None:
    info = tmp_path / "hosted-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hosted\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[sandstream.providers]\nhosted = hosted:ENTRY\n")
    (tmp_path / "hosted.py").write_text(HOSTED)
    done = python(tmp_path, "-c", NODES, str(tmp_path))
    shared, own = done.stdout.split()
    assert shared == "shared"
    assert own.startswith("own-shared_")
    assert not (tmp_path / "node").exists()
