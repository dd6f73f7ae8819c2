"""What `agents.sandbox` has and Sandstream has not, or has otherwise: all of it is listed here.

Looked at: every public name, its parameters and fields with their defaults, its methods with their
parameters. What Sandstream has in addition is not looked at.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from comparison.peer import peer_python
from comparison.sandbox_surface import Surface, surface_of_ours

pytestmark = pytest.mark.timeout(600)  # the first run installs the peer

TESTS = Path(__file__).resolve().parents[1]

NAMES_NOT_YET: dict[str, tuple[str, ...]] = {}
"""Topic of `docs/differences.md` -> names. The clients of containers and services are not listed:
the peer has them only where their libraries are installed."""


@dataclass(frozen=True)
class Other:
    """Members that are missing or different, by patterns as for file names."""

    reason: str
    names: tuple[str, ...]
    missing: tuple[str, ...] = ()
    different: tuple[str, ...] = ()


OTHERWISE = (
    Other(
        "the default is set when the agent is made, because it depends on the model",
        ("sandbox.SandboxAgent", "sandbox.sandbox_agent.SandboxAgent"),
        different=("model_settings",),
    ),
    Other(
        "the host's environment is not for the sandbox unless one says so",
        ("sandbox.sandboxes.*UnixLocalSandboxClient",),
        different=("inherit_host_environment",),
    ),
    Other(
        "a workspace always belongs to its sandbox",
        ("sandbox.sandboxes.*UnixLocalSandboxSessionState",),
        different=("workspace_root_owned",),
    ),
    Other(
        "how storage is mounted: nothing of it is for users, and local sandboxes have no mounts",
        ("sandbox.entries.*Mount",),
        missing=(
            "build_docker_volume_driver_config()",
            "build_in_container_mount_config()",
            "docker_volume_adapter()",
            "in_container_adapter()",
            "unmount()",
        ),
    ),
    Other(
        "the same, of the strategies",
        ("sandbox.entries.*MountStrategy", "sandbox.entries.MountStrategyBase"),
        missing=(
            "activate()",
            "build_docker_volume_driver_config()",
            "deactivate()",
            "restore_after_snapshot()",
            "teardown_for_snapshot()",
        ),
    ),
    Other(
        "the same, of the patterns",
        ("sandbox.entries.*MountPattern", "sandbox.entries.MountPatternBase"),
        missing=("apply()", "unapply()"),
    ),
    Other(
        "the same, of rclone",
        ("sandbox.entries.RcloneMountPattern",),
        missing=("read_config_text()", "resolve_remote_name()"),
    ),
    Other(
        "how a session prepares its backend; ours are all made by the sandbox's actor",
        ("sandbox.session.*SandboxSession", "sandbox.sandboxes.*SandboxSession"),
        missing=(
            "provision_manifest_accounts()",
            "should_provision_manifest_accounts_on_resume()",
            "supports_docker_volume_mounts()",
        ),
    ),
    Other(
        "a session is one object, not a wrapper around another",
        ("sandbox.session.SandboxSession",),
        missing=("inner",),
    ),
    Other(
        "sessions are made by clients",
        ("sandbox.sandboxes.*SandboxSession",),
        missing=("from_state()",),
    ),
    Other(
        "patches can be made as another user",
        ("sandbox.session.*SandboxSession", "sandbox.sandboxes.*SandboxSession"),
        different=("apply_patch()",),
    ),
    Other(
        "an actor has the container, and the client has the connection to the engine",
        ("sandbox.sandboxes.*DockerSandboxSession",),
        missing=("container", "docker_client", "removal_service"),
    ),
    Other(
        "without a client, the engine that the environment names is used",
        ("sandbox.sandboxes.*DockerSandboxClient",),
        different=("docker_client",),
    ),
    Other(
        "the container is made at the start of a session, and its name is known from then on",
        ("sandbox.sandboxes.*DockerSandboxSessionState",),
        different=("container_id",),
    ),
    Other(
        "files are removed by the agent in the container, with the container's rights",
        ("sandbox.sandboxes.*DockerRemovalService",),
        missing=("assert_bound()", "bind_new()", "release()", "remove()"),
    ),
    Other(
        "a state holds neither grants of host paths nor secrets of mounts that were left out",
        ("sandbox.*SandboxSessionState",),
        missing=(
            "assert_path_grants_rebound()",
            "rebind_persisted_mount_authority()",
            "rebind_persisted_path_grants()",
        ),
    ),
    Other(
        "the name of an argument that only Pydantic gives",
        ("sandbox.*SandboxSessionState", "sandbox.entries.FuseMountPattern"),
        different=("model_post_init()",),
    ),
    Other(
        "workspaces are not directories of this machine: links are resolved in the sandbox",
        ("sandbox.workspace_paths.WorkspacePathPolicy",),
        missing=("root_is_existing_host_path()",),
        different=("normalize_path()",),
    ),
)


@pytest.fixture(scope="module")
def theirs() -> Surface:
    done = subprocess.run(
        [str(peer_python()), "-m", "comparison.sandbox_surface"],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: Surface = json.loads(done.stdout)
    return found


def test_missing_sandbox_names_are_listed(theirs: Surface) -> None:
    assert len(theirs) > 150
    missing = set(theirs) - set(surface_of_ours(theirs))
    assert missing == {name for names in NAMES_NOT_YET.values() for name in names}


def test_members_that_differ_are_listed(theirs: Surface) -> None:
    found = _found(theirs)
    unlisted = [one for one in sorted(found) if not any(_covers(row, one) for row in OTHERWISE)]
    assert unlisted == []


def test_no_row_is_out_of_date(theirs: Surface) -> None:
    found = _found(theirs)
    gone = []
    for row in OTHERWISE:
        wanted = [("missing", one) for one in row.missing]
        wanted += [("different", one) for one in row.different]
        for kind, member in wanted:
            if not any(_covers(row, one) and one[1:] == (kind, member) for one in found):
                gone.append((row.reason, member))
    assert gone == []


def test_missing_sandbox_topics_are_told_to_users() -> None:
    page = (TESTS.parent / "docs" / "differences.md").read_text()
    assert [topic for topic in NAMES_NOT_YET if f"**{topic}**" not in page] == []


Finding = tuple[str, str, str]
"""Name, "missing" or "different", member."""


def _found(theirs: Surface) -> set[Finding]:
    ours = surface_of_ours(theirs)
    found = set()
    for name in ours:
        for member, value in theirs[name].items():
            if member not in ours[name]:
                found.add((name, "missing", member))
            elif ours[name][member] != value:
                found.add((name, "different", member))
    return found


def _covers(row: Other, finding: Finding) -> bool:
    name, kind, member = finding
    listed = row.missing if kind == "missing" else row.different
    return member in listed and any(fnmatchcase(name, one) for one in row.names)
