"""A machine that lacks something: nothing runs without isolation unless it was asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sandstream_providers.local.machine import free_uids
from sandstream_providers.local.seccomp import program

CHECK = """
import asyncio, sys
from pathlib import Path
from sandstream_providers.interface import ProviderUnavailable
from sandstream_providers.local import LocalProvider
try:
    print(asyncio.run(LocalProvider(Path(sys.argv[1]), isolation=sys.argv[2]).check()))
except ProviderUnavailable as error:
    print("unavailable:", error)
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="hides programs by mounting over them")


def checked(home: Path, *prefix: str, isolation: str = "required") -> str:
    argv = [*prefix, sys.executable, "-c", CHECK, str(home), isolation]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return done.stdout


def without(program_path: str) -> list[str]:
    """Run where a file of the machine is replaced by an empty one, for this process only."""
    script = f'mount --bind /dev/null {program_path} && exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]


@needs_root
@pytest.mark.parametrize("name", ["bwrap", "setpriv", "prlimit"])
def test_a_missing_program_is_named_with_what_to_install(tmp_path: Path, name: str) -> None:
    said = checked(tmp_path, *without(f"/usr/bin/{name}"))
    assert said.startswith(f"unavailable: sandboxes on this machine need {name}:")
    assert "apt-get install bubblewrap" in said
    assert "SANDSTREAM_LOCAL_ISOLATION=none" in said


@needs_root
@pytest.mark.skipif(
    Path(sys.base_prefix).resolve() == Path("/usr"), reason="would hide its own interpreter"
)
def test_without_an_interpreter_for_the_agent_it_says_so_or_takes_another(tmp_path: Path) -> None:
    said = checked(tmp_path, *without("$(readlink -f /usr/bin/python3)"))
    if said.startswith("unavailable:"):
        assert "sandboxes need Python 3.8 or newer at /usr/bin/python3" in said
        assert "apt-get install python3" in said
    else:
        assert "'python': '/usr/bin/python3'" not in said


@needs_root
def test_root_without_other_users_cannot(tmp_path: Path) -> None:
    said = checked(tmp_path, "unshare", "--user", "--map-root-user", "--mount")
    assert said.startswith("unavailable: root runs sandboxes as users without rights")


@needs_root
def test_refused_namespaces_are_said_with_what_to_allow(tmp_path: Path) -> None:
    """In a user namespace with users of its own, as in a container, that may make no other."""
    inside = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    waiting = 'echo waiting; read -r _; exec sh -c "$0" sh "$@"'
    argv = ["unshare", "--user", "--mount", "sh", "-c", waiting, inside]
    argv += [sys.executable, "-c", CHECK, str(tmp_path), "required"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        for kind in ("uid_map", "gid_map"):
            Path(f"/proc/{process.pid}/{kind}").write_text("0 0 65536\n")
        said, _ = process.communicate("go\n")
    assert "cannot make a sandbox here" in said
    assert "user.max_user_namespaces is 0 (sysctl user.max_user_namespaces=" in said


def test_without_isolation_it_is_there_all_the_same(tmp_path: Path) -> None:
    assert "'isolation': 'none'" in checked(tmp_path, isolation="none")


def test_users_for_boxes_come_from_what_the_machine_has() -> None:
    assert free_uids("0 0 4294967295\n") == range(700_000, 760_000)
    assert free_uids("0 1000 1\n1 100000 65536\n") == range(32_769, 65_537)
    assert free_uids("0 1000 1\n") == range(0)


def test_the_filter_is_known_for_the_common_machines() -> None:
    for machine in ("x86_64", "aarch64"):
        code = program(machine)
        assert code is not None
        assert len(code) % 8 == 0
    assert program("vax") is None
