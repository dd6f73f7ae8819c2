"""The system calls and sockets of a box: as documented, as listed in the code, and as they answer
in a real box, made by root and made by an ordinary user.
"""

from __future__ import annotations

import errno
import functools
import json
import platform
import re
import shutil
import signal
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from providers.local.starters import HERE, STARTERS, run_as
from sandstream_providers.local import seccomp, syscalls

MACHINE = platform.machine()
DOCS = Path(__file__).parents[3] / "docs" / "sandboxes.md"
BAD = [-1] * 6
HARMLESS_ARGUMENTS = {
    "clone": [signal.SIGCHLD, 0, 0, 0, 0, 0],
    "unshare": [0],
    "socket": [socket.AF_UNIX, socket.SOCK_STREAM, 0],
    "socketpair": [socket.AF_UNIX, socket.SOCK_STREAM, 0, -1],
}
ALLOWED = syscalls.allowed_numbers(MACHINE)
REFUSED = syscalls.numbers(syscalls.REFUSED, MACHINE)
X32 = 0x40000000
LAST = 600
PASSED_ON = {335, 336} if MACHINE == "x86_64" else set()
"""Probes of user programs: the kernel asks no filter, and ends whoever else calls them."""
UNKNOWN = sorted({*range(LAST)} - {*ALLOWED.values(), *REFUSED.values(), *PASSED_ON})
CHECKED = {
    "clone, user namespace": ("clone", [0x10000011, 0, 0, 0, 0, 0], errno.EPERM),
    "clone, pid namespace": ("clone", [0x20000011, 0, 0, 0, 0, 0], errno.EPERM),
    "unshare, user namespace": ("unshare", [0x10000000], errno.EPERM),
    "unshare, time namespace": ("unshare", [0x80], errno.EPERM),
    "personality, ordinary": ("personality", [0], 0),
    "personality, without address space randomisation": ("personality", [0x40000], errno.EPERM),
    "ioctl, typing into a terminal": ("ioctl", [0, 0x5412, 0], errno.EPERM),
    "ioctl, typing, other upper half": ("ioctl", [0, (1 << 32) + 0x5412, 0], errno.EPERM),
    "ioctl, the console": ("ioctl", [0, 0x541C, 0], errno.EPERM),
    "socketpair, internet": ("socketpair", [2, 1, 0, -1], errno.EAFNOSUPPORT),
    "socket, SCTP": ("socket", [2, 1, 132], errno.EPROTONOSUPPORT),
    "socket, MPTCP": ("socket", [2, 1, 262], errno.EPROTONOSUPPORT),
    "socket, netlink of the firewall": ("socket", [16, 3, 12], errno.EPROTONOSUPPORT),
    "socket, netlink of the interfaces": ("socket", [16, 3, 0], 0),
}
FAMILIES = range(60)


def wanted() -> dict[str, list[int]]:
    """Every call of the lists, all other numbers, all families."""
    listed = {**ALLOWED, **REFUSED}
    calls = {name: [number, *HARMLESS_ARGUMENTS.get(name, BAD)] for name, number in listed.items()}
    calls |= {f"number {number}": [number, *BAD] for number in UNKNOWN}
    calls |= {f"x32 {number}": [X32 + number, *BAD] for number in (0, 39, 165)}
    calls |= {f"family {family}": [ALLOWED["socket"], family, 2, 0] for family in FAMILIES}
    calls |= {name: [ALLOWED[call], *given] for name, (call, given, _) in CHECKED.items()}
    return calls


@functools.cache
def inside(starter: str) -> dict[str, Any]:
    done = run_as(starter, "trials.py", "calls", json.dumps(wanted()), needs=("call_probe.py",))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@functools.cache
def outside() -> dict[str, int]:
    """What this kernel says without any filter, to a user without rights."""
    ids = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]
    source = (HERE / "call_probe.py").read_bytes()
    listed = json.dumps({name: call for name, call in wanted().items() if name in ALLOWED})
    argv = ["/usr/bin/python3", "-", listed]
    prefix = [*ids, "--no-new-privs", "--"] if STARTERS[0] == "root" else []
    done = subprocess.run([*prefix, *argv], input=source, capture_output=True, check=True, cwd="/")
    found: dict[str, int] = json.loads(done.stdout)["calls"]
    return found


@pytest.mark.parametrize("starter", STARTERS)
def test_allowed_calls_reach_the_kernel(starter: str) -> None:
    answers = inside(starter)["calls"]
    for error in (errno.ENOSYS, errno.EPERM):
        filtered = [name for name in ALLOWED if answers[name] == error and outside()[name] != error]
        assert filtered == []


@pytest.mark.parametrize("starter", STARTERS)
def test_refused_calls_are_not_permitted(starter: str) -> None:
    answers = inside(starter)["calls"]
    assert {name: answers[name] for name in REFUSED} == dict.fromkeys(REFUSED, errno.EPERM)


@pytest.mark.parametrize("starter", STARTERS)
def test_other_numbers_do_not_exist(starter: str) -> None:
    answers = inside(starter)["calls"]
    others = [name for name in answers if name.startswith(("number ", "x32 "))]
    assert len(others) > 100
    assert {name: answers[name] for name in others} == dict.fromkeys(others, errno.ENOSYS)


@pytest.mark.parametrize("starter", STARTERS)
def test_the_other_architecture_is_ended(starter: str) -> None:
    assert inside(starter)["foreign"] == -signal.SIGSYS


@pytest.mark.parametrize("starter", STARTERS)
def test_arguments_are_checked(starter: str) -> None:
    answers = inside(starter)["calls"]
    assert {name: answers[name] for name in CHECKED} == {
        name: expected for name, (_, _, expected) in CHECKED.items()
    }


@pytest.mark.parametrize("starter", STARTERS)
def test_families_of_sockets(starter: str) -> None:
    answers = inside(starter)["calls"]
    usable = {family for family in FAMILIES if answers[f"family {family}"] == 0}
    assert usable == set(seccomp.FAMILIES.values())
    others = {answers[f"family {family}"] for family in FAMILIES if family not in usable}
    assert others == {errno.EAFNOSUPPORT}


def test_the_documentation_has_the_same_lists() -> None:
    text = DOCS.read_text()
    rows = dict(re.findall(r"^\| ([a-z ]+) \| ((?:`\w+` ?)+) \|$", text, re.MULTILINE))
    documented = {purpose: re.findall(r"`(\w+)`", calls) for purpose, calls in rows.items()}
    expected = {purpose: [call.name for call in calls] for purpose, calls in _lists().items()}
    assert {purpose: documented.get(purpose) for purpose in expected} == expected
    for name in (*seccomp.FAMILIES, *seccomp.NETLINK_PROTOCOLS):
        assert f"`{name}`" in text


def _lists() -> dict[str, tuple[syscalls.Call, ...]]:
    return {**syscalls.ALLOWED, "refused": syscalls.REFUSED}


@pytest.mark.parametrize("machine", syscalls.MACHINES)
def test_the_filter_of_every_machine_is_valid(machine: str) -> None:
    """Jumps stay inside, no number has two meanings, and the kernel's limit of steps is kept."""
    steps = list(struct.iter_unpack("=HBBI", seccomp.program(machine) or b""))
    assert 100 < len(steps) < 4096
    for at, (code, yes, no, _) in enumerate(steps):
        if code & 7 == 5:
            assert at + 1 + max(yes, no) < len(steps)
    assert steps[-1][0] == 6, "the last step is a return"
    numbers = [
        number
        for calls in _lists().values()
        for call in calls
        if (number := call.number(machine)) is not None
    ]
    assert len(numbers) == len(set(numbers))


def test_no_filter_for_an_unknown_machine() -> None:
    assert seccomp.program("pdp11") is None


WORK = {
    "python3": """
python3 - <<'END'
import concurrent.futures, mmap, multiprocessing, os, shutil, socket, sqlite3, subprocess, tempfile
import asyncio, ctypes, fcntl, select, signal, threading
assert sum(concurrent.futures.ThreadPoolExecutor(8).map(int, range(100))) == 4950
with concurrent.futures.ProcessPoolExecutor(2) as pool:
    assert sum(pool.map(int, range(10))) == 45
queue = multiprocessing.Queue(); queue.put(1); assert queue.get() == 1
base = sqlite3.connect("base.db"); base.execute("create table t(a)"); base.commit()
shutil.copy("base.db", "copy.db"); os.memfd_create("x"); socket.if_nameindex()
listener = socket.create_server(("127.0.0.1", 0))
socket.create_connection(listener.getsockname()).close()
async def main():
    process = await asyncio.create_subprocess_exec("true")
    assert await process.wait() == 0
asyncio.run(main())
print("fine")
END
""",
    "git": """
git init -q repo && cd repo && git config user.email a@b.c && git config user.name A
echo one > file && git add . && git commit -qm one && git gc -q && git clone -q . ../copy
cd ../copy && git log --oneline | wc -l >/dev/null && git worktree add -q ../tree && echo fine
""",
    "gcc": """
printf '#include <pthread.h>\\n#include <stdio.h>\\nvoid *f(void *p) { return p; }\\n' > a.c
printf 'int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0);' >> a.c
printf ' puts("fine"); }\\n' >> a.c
printf 'a: a.c\\n\\tgcc -pthread -o a a.c\\n' > Makefile
make -s -j2 && ./a
""",
    "node": """
node -e '
const os = require("os"), fs = require("fs"), cp = require("child_process");
os.networkInterfaces(); fs.writeFileSync("a", "b"); fs.watch(".").close();
cp.execSync("true");
const { Worker } = require("worker_threads");
const server = require("http").createServer((q, r) => r.end("fine")).listen(0, "127.0.0.1", () => {
  require("http").get({ port: server.address().port, host: "127.0.0.1" }, (answer) => {
    answer.on("data", (d) => console.log(String(d))); answer.on("end", () => server.close());
  });
});
new Worker("1", { eval: true });'
""",
    "tar": "mkdir d; echo fine > d/f; tar czf d.tgz d; rm -r d; tar xzf d.tgz; cat d/f",
}


@pytest.mark.parametrize("starter", STARTERS)
@pytest.mark.parametrize("tool", WORK)
def test_ordinary_work(tool: str, starter: str) -> None:
    if shutil.which(tool, path="/usr/bin:/bin") is None:
        pytest.skip(f"there is no {tool} here")
    done = run_as(starter, "trials.py", "work", WORK[tool])
    assert done.returncode == 0, done.stderr
    code, out, errors = json.loads(done.stdout)
    assert (code, out.split()[-1:]) == (0, ["fine"]), errors
