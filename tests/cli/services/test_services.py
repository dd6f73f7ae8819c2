"""``up``, ``actor``, ``worker``: ready, replicas, stopped well, never left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from cli.cli_process import DEADLINE_S, Cli, wait_until


def children_of(pid: int) -> list[int]:
    """The harness processes that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text().rpartition(") ")[2].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(stat[1]) == pid and b"actor\0harness" in command and stat[0] != "Z":
                found.append(int(entry.name))
    return found


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except OSError:
        return True


def test_up_says_where_it_is_and_how_to_go_on(cli: Cli, app: Path) -> None:
    process = cli.start("up", str(app), "--no-sandbox")
    told = [process.stderr.readline() for _ in range(7)]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (0, "")
    text = "".join(told)
    for part in ("nats://127.0.0.1:", str(cli.home), "agents  assistant", "sandstream submit"):
        assert part in text
    assert "stopping" in err


def test_replicas_are_restarted_and_end_with_their_parent(cli: Cli, app: Path) -> None:
    with cli.service("up", str(app), "--replicas", "2") as up:
        assert up.ready["agents"] == ["assistant"] and up.ready["replicas"] == 2
        (first,) = wait_until(lambda: children_of(up.pid), "a replica")
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: is_gone(first), "the end of the replica")
        (second,) = wait_until(lambda: children_of(up.pid), "another replica")
        assert second != first
        up.kill()  # -9: nobody tells the replica
        wait_until(lambda: is_gone(second), "the end of the second replica")


def test_stopping_takes_the_replicas_along(cli: Cli) -> None:
    with cli.service("up", "--replicas", "2") as up:
        replicas = wait_until(lambda: children_of(up.pid), "a replica")
    assert all(is_gone(pid) for pid in replicas)


def test_worker_and_harness_of_other_pools(cli: Cli, app: Path) -> None:
    with (
        cli.service("actor", "harness", "--pool", "fast", "--concurrency", "2") as actor,
        cli.service("worker", str(app), "--pool", "w 1", "--harness-pool", "fast") as worker,
    ):
        assert actor.ready["pool"] == "fast"
        assert worker.ready["agents"] == ["assistant"]
        done = cli("submit", "assistant", "How is it?", "--wait")
        assert (done.code, done.out) == (0, "It is sunny in Paris.\n")


def test_same_agent_in_two_files(cli: Cli, app: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(app.read_text())
    done = cli("up", str(app), str(other))
    assert done.code == 2 and "the agent 'assistant' is in both" in done.err
    twin = tmp_path / app.name
    twin.write_text(app.read_text())
    assert "have the same name" in cli("up", str(app), str(twin)).err
