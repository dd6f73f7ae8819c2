"""``sandboxes`` and the sandbox actor on a real server, with real sandboxes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.cli_process import Cli, wait_until
from cli.cli_terminal import on_terminal
from providers.local.local_boxes import pids_with
from sandstream_bus.bus import Bus
from sandstream_bus.wire.messages import CallFinished
from sandstream_bus.wire.sandboxes import (
    SandboxIntended,
    SandboxPaused,
    SandboxReady,
    SandboxSpec,
)
from sandstream_bus.wire.subjects import sandbox_of
from support.nats_server import NatsServer

from sandstream.cli.commands.sandboxes.command import SandboxSummary, summary_of
from sandstream.cli.main import main
from sandstream.cli.sandbox_choice import FoundSandbox
from sandstream.client import Client
from sandstream.settings import Settings

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="hides bubblewrap by mounting over it")
WITHOUT_BWRAP = (
    *("unshare", "--mount", "--propagation", "private", "sh", "-c"),
    'mount --bind /dev/null "$(command -v bwrap)" && exec "$@"',
    "sh",
)


def find(cli: Cli, run: str) -> SandboxSummary | None:
    """The sandbox of a run, as the list would have it; None before there is one."""

    async def look() -> SandboxSummary | None:
        async with await Client.connect(Settings.from_env(cli.env)) as client:
            sandbox = sandbox_of(run, "coder")
            events = await client.bus.sandboxes.read(sandbox)
            return summary_of(FoundSandbox(sandbox, events)) if events else None

    return asyncio.run(look())


def state_of(cli: Cli, run: str) -> str:
    found = find(cli, run)
    return found.state if found else "unknown"


def holding(cli: Cli, key: str) -> str:
    """The id of a live sandbox whose run waits for its model."""
    assert cli.here("submit", "coder", "hold on", "--key", key).code == 0

    async def has_run_its_command() -> bool:
        async with await Client.connect(Settings.from_env(cli.env)) as client:
            found = [it.event for it in await client.events(key)]
            return any(isinstance(it, CallFinished) and it.kind == "tool" for it in found)

    wait_until(lambda: asyncio.run(has_run_its_command()), f"the command of {key}")
    return sandbox_of(key, "coder")


def end_behind_its_back(cli: Cli, run: str) -> None:
    """End a run as a client elsewhere would, who does not see this machine's boxes."""

    async def cancel() -> None:
        async with await Client.connect(Settings.from_env(cli.env)) as client:
            await client.cancel(run)

    asyncio.run(cancel())


def test_up_serves_sandbox_agents(sandboxed: Cli) -> None:
    done = sandboxed.here("submit", "coder", "write files", "--wait", "--json")
    assert (done.code, done.one["output"]) == (0, "Written."), done
    run = done.one["run_id"]
    (found,) = [one for one in sandboxed.here("sandboxes", "--json").lines if one["run_id"] == run]
    assert (found["state"], found["agent"], found["provider"]) == ("stopped", "coder", "local")
    assert (found["generation"], found["checkpoints"], found["files"]) == (1, 1, 3)
    header, *rows = sandboxed.here("sandboxes").out.splitlines()
    assert header.split()[:4] == ["SANDBOX", "STATE", "PROVIDER", "NODE"]
    assert any(row.startswith(f"{found['sandbox']}  stopped") for row in rows)
    shown = sandboxed("sandboxes", "show", run, env={"COLUMNS": "80"})
    log = shown.out.partition("LOG\n")[2].splitlines()
    assert all(len(line) <= 80 for line in shown.out.splitlines())
    labels = [line[10:20].strip() for line in log if not line.startswith(" ")]
    assert labels == ["make", "ready", "checkpoint", "stopped"]
    assert f"artifacts ls {found['sandbox']}" in shown.err
    checks = {check["name"]: check for check in sandboxed.here("doctor", "--json").lines}
    assert checks["sandbox"]["found"] == f"live: local-{found['node']}"
    whole = sandboxed.here("sandboxes", "show", found["sandbox"], "--json").one
    assert whole["summary"] == found
    assert whole["events"][0]["event"]["type"] == "sandbox.intended"


def test_show_and_watch_tell_of_the_sandbox(sandboxed: Cli) -> None:
    run = sandboxed.here("submit", "coder", "patch", "--wait", "--json").one["run_id"]
    shown = sandboxed.here("show", run, "--events")
    assert "coder        → apply_patch:\n             *** Begin Patch" in shown.out
    assert "apply_patch  ← " in shown.out
    assert f"sandbox   {run}_" in shown.out and "stopped, 7 B saved" in shown.out
    for about in ("open t1-open", "apply_patch t1-0", "close t2-close"):
        assert about in shown.out
    lines = sandboxed.here("watch", run).out.splitlines()
    labels = [line[10:18].strip() for line in lines]
    assert labels == [
        *("start", "user", "sandbox", "sandbox", "model", "call", "result", "model", "says"),
        *("sandbox", "sandbox", "done"),
    ]
    assert "ready at /workspace on node" in lines[3]
    assert "1 call" in lines[4]
    assert "closed · checkpoint " in lines[-2] and "1 file, 7 B" in lines[-2]


def test_a_command_in_a_live_sandbox_and_its_removal(sandboxed: Cli) -> None:
    sandbox = holding(sandboxed, "held-1")
    script = "cat held.txt; pwd; echo oops >&2; exit 7"
    done = sandboxed("sandboxes", "exec", sandbox, "--cwd", "/workspace", "--", "sh", "-c", script)
    assert (done.code, done.out, done.err) == (7, "held\n/workspace\n", "oops\n")
    # by the run's id; an output that is longer than one piece comes whole and in order
    long = sandboxed.here("sandboxes", "exec", "held-1", "seq", "1", "200000")
    assert long.code == 0
    assert long.out.splitlines() == [str(number) for number in range(1, 200_001)]
    ran = sandboxed.here(
        "sandboxes", "exec", sandbox, "--timeout", "0.2", "--json", "--", "sleep", "60"
    )
    assert ran.code == 128 + signal.SIGTERM and ran.one["killed"] == "timeout"
    assert "was killed (timeout)" in ran.err
    missing = sandboxed.here("sandboxes", "exec", sandbox, "--", "no-such-program")
    assert (missing.code, missing.out) == (1, "") and "no-such-program" in missing.err
    asked = sandboxed.here("sandboxes", "rm", sandbox)
    assert asked.code == 2 and "use --yes" in asked.err
    removed = sandboxed.here("sandboxes", "rm", sandbox, "--yes", "--json")
    assert (removed.code, removed.one["state"]) == (0, "deleted")
    assert sandbox not in sandboxed.here("sandboxes").out
    assert state_of(sandboxed, "held-1") == "deleted"
    again = sandboxed.here("sandboxes", "rm", sandbox, "-y")
    assert again.code == 0 and "was deleted before" in again.err
    gone = sandboxed.here("sandboxes", "exec", sandbox, "--", "ls")
    assert (gone.code, gone.out) == (3, "") and "was deleted" in gone.err
    assert sandboxed.here("cancel", "held-1").code == 0


def test_watch_shows_the_output_of_a_command_as_it_comes(sandboxed: Cli) -> None:
    assert sandboxed.here("submit", "coder", "wait for go", "--key", "go").code == 0
    wait_until(lambda: state_of(sandboxed, "go") == "ready", "the sandbox")
    process = sandboxed.start("watch", "go")
    lines = iter(process.stdout.readline, "")
    assert any(line[10:].startswith("call ") for line in lines)
    script = "printf 'released \\033[31mnow\\n' > .go && mv .go go"
    assert sandboxed.here("sandboxes", "exec", "go", "--", "sh", "-c", script).code == 0
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    told = out.splitlines()
    assert told[0][10:] == "│        released now"
    assert told[1][10:].startswith("result   exec_command → exit code 0 · ")


def test_unknown_ids_are_not_found(sandboxed: Cli) -> None:
    for arguments in (["show", "nope"], ["rm", "nope", "-y"], ["exec", "nope", "--", "ls"]):
        done = sandboxed.here("sandboxes", *arguments)
        assert (done.code, done.out) == (3, "")
        assert "there is no sandbox and no run 'nope'" in done.err
    assert sandboxed.here("sandboxes", "show", "no such id").code == 2


def test_a_run_without_a_sandbox_says_so(served: Cli, finished: str) -> None:
    done = served.here("sandboxes", "show", finished)
    assert done.code == 3
    assert f"run {finished} has no sandbox; `sandstream sandboxes` lists all there are" in done.err
    assert served.here("sandboxes").err.startswith("no sandboxes")


def test_nobody_serves_the_node_then_the_machine_is_cleaned_up(cli: Cli, coder: Path) -> None:
    process = cli.start("up", str(coder), "--json")
    assert process.stdout.readline()
    sandbox = holding(cli, "left")
    process.kill()
    process.communicate()
    for arguments in (["exec", sandbox, "--", "ls"], ["rm", sandbox, "--yes"]):
        done = cli.here("sandboxes", *arguments)
        assert (done.code, done.out) == (4, "")
        assert f"no actor serves sandbox {sandbox}" in done.err and "actor sandbox" in done.err
    kept = cli.here("sandboxes", "reap", "--json").one
    assert (kept["sandbox"], kept["do"]) == (sandbox, "keep")
    assert "its run left has not ended" in kept["why"]
    end_behind_its_back(cli, "left")
    todo = cli.here("sandboxes", "reap")
    assert "close" in todo.out and "its run left has ended" in todo.out
    assert "--yes does it now" in todo.err
    _, text, _ = on_terminal(cli, "sandboxes", "reap")
    assert "its run left has ended" in text and max(map(len, text.splitlines())) <= 80
    assert state_of(cli, "left") == "ready"  # it only looked
    assert cli.here("sandboxes", "reap", "--yes").code == 0
    assert state_of(cli, "left") == "stopped"
    assert cli.here("artifacts", "get", sandbox, "held.txt", "-o", "-").out == "held\n"
    assert cli.here("sandboxes", "reap", "--json").out == ""
    with cli.service("actor", "sandbox") as actor:
        assert actor.ready["node"] and "isolation" in actor.ready["sandboxes"]
        assert cli.here("sandboxes", "exec", sandbox, "--", "cat", "held.txt").out == "held\n"


def test_cancel_ends_the_box_of_a_program_that_was_killed(cli: Cli, coder: Path) -> None:
    """Without a key nobody can go on with its run; with one nobody has to."""
    for more in ([], ["--key", "mine"]):
        process = cli.start("run", str(coder), "hold on", "--json", *more)

        def runs() -> list[dict[str, Any]]:
            found = cli.here("runs", "--status", "running", "--json")
            return [it for it in found.lines if state_of(cli, it["run_id"]) == "ready"]

        wait_until(lambda: bool(runs()), "the sandbox of the run")
        process.kill()
        process.communicate()
        (run,) = runs()
        (box,) = (cli.home / "sandboxes").glob("[!.]*")
        assert pids_with(box.name)
        assert cli.here("cancel", run["run_id"]).code == 0
        assert pids_with(box.name) == []
        assert list((cli.home / "sandboxes").glob("*")) == []
        assert state_of(cli, run["run_id"]) == "stopped"


def test_a_sandbox_of_an_ended_process_is_served_from_here(cli: Cli, coder: Path) -> None:
    done = cli("run", str(coder), "hold on", "--key", "own", "--max-turns", "1")
    assert done.code == 1  # stopped by its limit, after its first turn
    sandbox = find(cli, "own")
    assert sandbox and sandbox.state == "stopped" and sandbox.node.startswith("own-")
    changed = cli.here(
        "sandboxes", "exec", "own", "--", "sh", "-c", "cat held.txt; echo 2 > new.txt"
    )
    assert (changed.code, changed.out) == (0, "held\n"), changed
    after = find(cli, "own")
    assert after and (after.state, after.checkpoints) == ("stopped", 2)  # as it was found
    compared = cli.here("artifacts", "diff", "own")
    assert compared.out == "A new.txt\n"
    assert cli.here("sandboxes", "rm", "own", "-y").code == 0
    assert state_of(cli, "own") == "deleted"


@needs_root
def test_without_isolation_the_actor_says_what_to_install(cli: Cli, app: Path) -> None:
    command = [*WITHOUT_BWRAP, sys.executable, "-m", "sandstream.cli"]

    def run(*arguments: str, **how: Any) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([*command, *arguments], env=cli.env, text=True, **pipes)

    actor = run("actor", "sandbox", "--json")
    out, err = actor.communicate(timeout=30)
    assert (actor.returncode, out) == (1, "")
    assert "install bubblewrap" in err and "Traceback" not in err
    assert len(err.splitlines()) == 1
    up = run("up", str(app), "--json")
    assert up.stdout is not None
    assert "node" not in up.stdout.readline()
    up.send_signal(signal.SIGTERM)
    _, err = up.communicate(timeout=30)
    assert up.returncode == 0
    assert err.startswith("sandstream: warning: no sandboxes here: ")
    doctor = run("doctor", "--json")
    out, _ = doctor.communicate(timeout=30)
    assert doctor.returncode == 1
    assert '{"name":"sandboxes","state":"problem"' in out and "install bubblewrap" in out
    # with a cluster, another machine may have the sandboxes
    elsewhere = run("doctor", "--json", "--nats-url", "nats://127.0.0.1:1")
    out, _ = elsewhere.communicate(timeout=30)
    assert '{"name":"sandboxes","state":"warning"' in out


@needs_root
def test_a_run_that_cannot_have_its_sandbox_ends_at_once(cli: Cli, coder: Path) -> None:
    """It never began, so nobody waits for its end, however patient the command would be."""
    program = (
        "import importlib, sys\n"
        "from sandstream.cli import main\n"
        "command = importlib.import_module('sandstream.cli.commands.run.command')\n"
        "assert command._END_PATIENCE_S < 1e6\n"
        "command._END_PATIENCE_S = 1e6\n"
        "sys.exit(main.main(sys.argv[1:]))\n"
    )
    done = subprocess.run(
        [*WITHOUT_BWRAP, sys.executable, "-c", program, "run", str(coder), "patch"],
        env=cli.env,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("sandstream: sandbox provider 'local' is not available: ")
    assert "install bubblewrap" in done.stderr and len(done.stderr.splitlines()) == 1


def test_an_actor_without_isolation_when_asked_for(cli: Cli) -> None:
    with cli.service("actor", "sandbox", "--isolation", "none", "--concurrency", "8") as actor:
        assert actor.ready["node"].endswith("-plain")
        assert actor.ready["sandboxes"]["isolation"] == "none"
    bad = cli("actor", "sandbox", env={"SANDSTREAM_LOCAL_ISOLATION": "perhaps"})
    assert bad.code == 2 and "must be required or none" in bad.err
    for value in ("soon", "0", "-1", "inf", "nan"):
        bad = cli("actor", "sandbox", env={"SANDSTREAM_SANDBOX_GRACE_S": value})
        assert bad.code in (1, 2) and "must be a number of seconds above 0" in bad.err, bad


def test_programs_are_found_whatever_the_path_of_the_caller(cli: Cli, tmp_path: Path) -> None:
    done = cli("doctor", "--json", env={"PATH": str(tmp_path)})
    (found,) = [it for it in done.lines if it["name"] == "sandboxes"]
    assert found["state"] == "ok" and "bubblewrap" in found["found"]


def test_a_box_at_a_vendor_is_shown_with_its_id(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And with what became of it, for people who look at the vendor's own list."""

    async def write() -> None:
        bus = await Bus.open(nats_server.options(), create="missing")
        spec = SandboxSpec(provider="daytona", keep_paused=True)
        key: dict[str, Any] = {"generation": 1, "key": "k", "node": "shared"}
        last = 0
        for event in (
            SandboxIntended(spec=spec, provider="daytona", **key),
            SandboxReady(root="/w", box_id="8e1f-17", **key),
            SandboxPaused(generation=1, reason="closed by its session", saved=True, kept=True),
        ):
            last = await bus.sandboxes.append("s-1", event, after=last)
        await bus.close()

    asyncio.run(write())
    monkeypatch.setenv("NATS_URL", nats_server.url)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["sandboxes"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert "BOX" in header.split() and "8e1f-17" in row.split()
    assert main(["sandboxes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["box_id"] == "8e1f-17"
    assert main(["sandboxes", "show", "s-1"]) == 0
    shown = capsys.readouterr().out
    assert "box       8e1f-17" in shown
    assert "at /w in 8e1f-17" in shown
    assert "closed by its session; kept for a later session" in shown


def test_up_serves_a_vendor_only_with_its_key(tmp_path: Path, model_url: str, coder: Path) -> None:
    cli = Cli(tmp_path / "home", model_url)
    cli.env["E2B_API_URL"] = "http://127.0.0.1:1"
    with cli.service("up", str(coder)) as up:
        assert not {"daytona", "e2b"} & {*up.ready["providers"], *up.ready.get("missing", {})}
    cli.env["E2B_API_KEY"] = "e2b_00"
    with cli.service("up", str(coder)) as up:
        assert "e2b" in up.ready["missing"] and "daytona" not in up.ready["missing"]
