"""``artifacts``: files from checkpoints, written where they may be and nowhere else."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from cli.cli_process import Cli

from sandstream._inspect.visible_text import in_one_line

ODD = "odd\x1b[31mname"


@pytest.fixture(scope="module")
def run(sandboxed: Cli) -> str:
    """A run that has written files."""
    done = sandboxed("submit", "coder", "write files", "--wait", "--json")
    assert done.one["status"] == "completed", done
    run_id: str = done.one["run_id"]
    return run_id


def test_ls(sandboxed: Cli, run: str) -> None:
    top = sandboxed.here("artifacts", "ls", run)
    assert top.code == 0
    assert [line.split(maxsplit=2)[0] for line in top.out.splitlines()] == [
        "-rw-r--r--",
        "drwxr-xr-x",
    ]
    assert "odd\\x1b[31mname" in top.out and "\x1b" not in top.out
    assert top.out.endswith("  out/\n")
    below = sandboxed.here("artifacts", "ls", run, "/workspace/out", "--recursive", "--json")
    assert [(one["path"], one["kind"]) for one in below.lines] == [
        ("out/a.txt", "file"),
        ("out/deep", "dir"),
        ("out/deep/n.txt", "file"),
        ("out/far", "link"),
        ("out/near", "link"),
        ("out/up", "link"),
    ]
    assert below.lines[3]["target"] == "/etc/passwd"
    sandbox = sandboxed.here("sandboxes", "show", run, "--json").one["summary"]
    digits = sandbox["checkpoint"][:6]
    one = sandboxed.here("artifacts", "ls", sandbox["sandbox"], "out/far", "--checkpoint", digits)
    assert one.out.endswith("out/far -> /etc/passwd\n")


def test_get_one_file(sandboxed: Cli, run: str, tmp_path: Path) -> None:
    assert sandboxed.here("artifacts", "get", run, "out/a.txt", "-o", "-").out == "hello"
    target = tmp_path / "copy.txt"
    command = ("artifacts", "get", run, "out/a.txt", "-o", str(target))
    assert sandboxed.here(*command).code == 0
    assert target.read_text() == "hello"
    target.write_text("mine")
    refused = sandboxed.here(*command)
    assert refused.code == 2 and "it exists (--force overwrites)" in refused.err
    assert target.read_text() == "mine"
    forced = sandboxed.here(*command, "--force", "--json")
    assert (forced.code, forced.one["files"], forced.one["size_bytes"]) == (0, 1, 5)
    assert target.read_text() == "hello"
    assert sandboxed.here("artifacts", "get", run, ODD, "-o", str(tmp_path)).code == 0
    assert (tmp_path / ODD).read_text() == "x"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["copy.txt", ODD]


def test_get_a_directory_without_links_that_lead_out(
    sandboxed: Cli, run: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    done = sandboxed.here("artifacts", "get", run, "out", "-o", str(target))
    assert (done.code, done.out) == (0, ""), done
    assert f"{target}: 2 files, 146 B" in done.err
    assert "left out: out/far -> /etc/passwd (a link that leads out" in done.err
    assert "left out: out/up -> ../../.." in done.err
    found = sorted(str(path.relative_to(target)) for path in target.rglob("*"))
    assert found == ["a.txt", "deep", "deep/n.txt", "near"]
    assert (target / "near").is_symlink() and (target / "near").read_text() == "hello"


def test_a_link_in_the_target_is_not_followed(sandboxed: Cli, run: str, tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    (target / "deep").symlink_to(outside)
    done = sandboxed.here("artifacts", "get", run, "out", "-o", str(target), "--force")
    assert done.code == 2 and "is in the way" in done.err
    assert list(outside.iterdir()) == []


def test_get_as_a_tar_file(sandboxed: Cli, run: str, tmp_path: Path) -> None:
    target = tmp_path / "all.tar"
    assert sandboxed.here("artifacts", "get", run, "--tar", "-o", str(target)).code == 0
    with tarfile.open(target) as archive:
        names = archive.getnames()
        assert {"out/a.txt", "out/far", ODD} <= set(names)
    process = sandboxed.start("artifacts", "get", run, "out/deep", "--tar", "-o", "-", text=False)
    out, _ = process.communicate(timeout=30)
    with tarfile.open(fileobj=io.BytesIO(out)) as archive:
        assert archive.getnames() == ["n.txt"]


def test_diff_of_the_first_checkpoint_is_everything(sandboxed: Cli, run: str) -> None:
    compared = sandboxed.here("artifacts", "diff", run, "--json").one
    assert compared["before"] == "" and "out/a.txt" in compared["added"]
    assert (compared["changed"], compared["removed"]) == ([], [])
    told = sandboxed.here("artifacts", "diff", run)
    assert "A out/a.txt\n" in told.out and "\x1b" not in told.out
    assert told.err.startswith("from an empty workspace to ")


def test_the_whole_output_of_a_shortened_command(sandboxed: Cli, tmp_path: Path) -> None:
    talked = sandboxed("submit", "coder", "talk long", "--wait", "--json").one["run_id"]
    shown = sandboxed.here("show", talked).out
    assert f"shortened; all 109 kB: sandstream artifacts output {talked} t1-0\n" in shown
    events = sandboxed.here("show", talked, "--events").out
    assert "exec_command t1-0 (shortened; `artifacts output` has all 109 kB)" in events
    watched = sandboxed.here("watch", talked).out
    assert f"sandstream artifacts output {talked} t1-0\n" in watched
    numbers = "".join(f"{number}\n" for number in range(1, 20_001))
    assert sandboxed.here("artifacts", "output", talked, "t1-0").out == numbers
    target = tmp_path / "log"
    assert sandboxed.here("artifacts", "output", talked, "t1-0", "-o", str(target)).code == 0
    assert target.read_text() == numbers
    missing = sandboxed.here("artifacts", "output", talked, "t9-0")
    assert missing.code == 3 and "those with a shortened output: t1-0" in missing.err


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["ls", "RUN", "nope"], 3, "there is nothing at 'nope'"),
        (["ls", "RUN", "../up"], 2, "cannot have '..'"),
        (["ls", "RUN", "/etc"], 2, "is not in the workspace, which is /workspace"),
        (["ls", "nope"], 3, "there is no sandbox and no run"),
        (["ls", "RUN", "--checkpoint", "zz"], 3, "has no checkpoint 'zz'"),
        (["get", "RUN", "out", "-o", "-"], 2, "a directory can go to stdout only with --tar"),
        (["get", "RUN", "out/near"], 2, "is a link to a.txt"),
        (["get", "RUN", "out/nope"], 3, "there is nothing at 'out/nope'"),
        (["get", "RUN", "out/nope"], 3, "`sandstream artifacts ls` lists its files"),
        (["get", "RUN", "out/a.txt", "-o", "/no/such/dir/x"], 2, "cannot write to the directory"),
        (["get", "RUN", "--tar"], 2, "--tar needs -o"),
        (["get", "RUN", "out/a.txt", "-o", "-", "--json"], 2, "cannot have both"),
        (["diff", "RUN", "--from", "zz"], 3, "has no checkpoint 'zz'"),
    ],
)
def test_bad_input(sandboxed: Cli, run: str, arguments: list[str], code: int, why: str) -> None:
    done = sandboxed.here("artifacts", *(run if it == "RUN" else it for it in arguments))
    assert (done.code, done.out) == (code, "")
    assert why in done.err and len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain é.txt", "plain é.txt"),
        ("a\nb\x7f", "a\\nb\\x7f"),
        ("bad\udcff", "bad\\xff"),
        ("right\u202eleft", "right\\u202eleft"),
    ],
)
def test_names_cannot_steer_a_terminal(name: str, shown: str) -> None:
    assert in_one_line(name) == shown
