"""The command line with Docker sandboxes, on a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.cli_process import Cli
from support.engines import engine

pytestmark = pytest.mark.timeout(300)  # the first test that needs an engine starts it


@pytest.fixture(scope="module")
def contained(tmp_path_factory: pytest.TempPathFactory, model_url: str) -> Iterator[Cli]:
    """Commands in a home of their own, whose engine is that of the tests."""
    cli = Cli(tmp_path_factory.mktemp("contained") / "home", model_url)
    cli.env["DOCKER_HOST"] = engine.ensure()
    yield cli


@pytest.mark.parametrize("image", [engine.PYTHON, engine.BUSYBOX])
def test_a_run_in_a_container(contained: Cli, coder: Path, tmp_path: Path, image: str) -> None:
    (tmp_path / "a.txt").write_text("from the workspace\n")
    command = ("run", str(coder), "look around", "--sandbox", "docker", "--image", image)
    process = contained.start(*command, "--workspace", ".", "--json", cwd=tmp_path)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "from the workspace" in err
    found = contained.here("sandboxes", "--json").lines[0]
    assert (found["provider"], found["image"], found["state"]) == ("docker", image, "stopped")
    listed = contained.here("sandboxes").out
    assert "docker" in listed and "test" in listed
    shown = contained.here("sandboxes", "show", found["sandbox"]).out
    assert image in shown
    files = contained.here("artifacts", "ls", found["run_id"], "--json").lines
    assert [it["path"] for it in files] == ["a.txt"]
    said = contained("sandboxes", "exec", found["sandbox"], "--", "cat", "a.txt")
    assert (said.code, said.out) == (0, "from the workspace\n")
    assert contained("sandboxes", "rm", found["sandbox"], "--yes").code == 0


def test_a_pull_is_told_while_the_run_waits_for_it(contained: Cli, coder: Path) -> None:
    image = "127.0.0.1:9/none:1"
    done = contained("run", str(coder), "look around", "--sandbox", "docker", "--image", image)
    assert done.code == 1
    told, failed = f"│        pulling the image {image}", f"the image {image} is not here"
    assert told in done.err and failed in done.err.partition(told)[2], done.err


def test_up_serves_both_providers_and_doctor_knows_the_engine(contained: Cli, coder: Path) -> None:
    with contained.service("up", str(coder)) as up:
        assert up.ready["providers"] == ["local", "docker"]
        assert "missing" not in up.ready
    found = [it for it in contained("doctor", "--json").lines if it["name"] == "docker"]
    assert [it["state"] for it in found] == ["ok"]
    assert found[0]["found"].startswith("Docker ")


def test_up_says_why_docker_is_missing(contained: Cli, coder: Path, tmp_path: Path) -> None:
    other = Cli(tmp_path / "home", contained.env["OPENAI_BASE_URL"])
    other.env["DOCKER_HOST"] = f"unix://{tmp_path}/none.sock"
    with other.service("up", str(coder)) as up:
        assert up.ready["providers"] == ["local"]
        assert "no Docker engine answers" in up.ready["missing"]["docker"]


def test_an_actor_of_the_engine(contained: Cli) -> None:
    with (
        contained.service("up", "--no-sandbox"),
        contained.service("actor", "sandbox", "--provider", "docker") as actor,
    ):
        assert actor.ready["node"]
