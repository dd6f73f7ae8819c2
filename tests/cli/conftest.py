"""One installation for all command-line tests: a model, a home, ``up`` with an app."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.cli_process import APP, CODER, Cli, wait_until
from cli.team_app import SCRIPTS, TEAM

from sandstream.testing import (
    ScriptedModel,
    custom_tool_call,
    error,
    script_for,
    text,
    tool_call,
)

WRITE = r"""
mkdir -p out/deep && printf hello > out/a.txt && seq 1 50 > out/deep/n.txt
ln -s a.txt out/near && ln -s /etc/passwd out/far && ln -s ../../.. out/up
printf x > "$(printf 'odd\033[31mname')"
echo "written so far"
"""
PATCH = "*** Begin Patch\n*** Add File: notes.md\n+# Notes\n*** End Patch\n"
SANDBOX_SCRIPTS = [
    script_for("write files", [tool_call("exec_command", {"cmd": WRITE}), text("Written.")]),
    script_for(
        "talk long",
        [
            tool_call("exec_command", {"cmd": "seq 1 20000", "max_output_tokens": 200}),
            text("Long."),
        ],
    ),
    script_for("patch", [custom_tool_call("apply_patch", PATCH), text("Patched.")]),
    script_for("look around", [tool_call("exec_command", {"cmd": "cat *.txt"}), text("Seen.")]),
    script_for(
        "wait for go",
        [
            tool_call(
                "exec_command",
                {"cmd": "until [ -e go ]; do sleep 0.05; done; cat go", "yield_time_ms": 30_000},
            ),
            text("Gone."),
        ],
    ),
    script_for("talk in turns", [text("First."), text("Second."), text("Third.")]),
    script_for("say escapes", [text("red \x1b[31malert\x1b[0m \u202eback"), text("Plain.")]),
    script_for(
        "hold on",
        [tool_call("exec_command", {"cmd": "echo held > held.txt"}), text("Late.").after(120)],
    ),
]


@pytest.fixture(scope="session")
def model_url() -> Iterator[str]:
    weather = [tool_call("get_weather", {"city": "Paris"}), text("It is sunny in Paris.")]
    script = [
        script_for("be slow", [text("Late.").after(120)]),
        script_for("hang", [tool_call("get_weather", {"city": "Atlantis"}), text("Wet.")]),
        script_for("break", [error(400, code="bad", message="No such luck.").forever()]),
        script_for("for ever", [tool_call("get_weather", {"city": "Bern"})] * 9),
        script_for("escape", [text("red \x1b[31malert\x1b[0m")]),
        *SANDBOX_SCRIPTS,
    ]
    with ScriptedModel(conversations=script, default=weather, strict=False) as model:
        yield model.base_url


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("app") / "weather.py"
    path.write_text(APP)
    return path


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, model_url: str, app: Path) -> Iterator[Cli]:
    """Commands in a home where ``sandstream up weather.py`` runs."""
    cli = Cli(tmp_path_factory.mktemp("served") / "home", model_url)
    with cli.service("up", str(app)):
        yield cli


@pytest.fixture(scope="session")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with an agent that works in a sandbox."""
    path = tmp_path_factory.mktemp("coder") / "coder.py"
    path.write_text(CODER)
    return path


@pytest.fixture(scope="session")
def sandboxed(
    tmp_path_factory: pytest.TempPathFactory, model_url: str, coder: Path
) -> Iterator[Cli]:
    """Commands in a home where ``sandstream up coder.py`` runs, sandboxes included."""
    cli = Cli(tmp_path_factory.mktemp("sandboxed") / "home", model_url)
    with cli.service("up", str(coder)) as up:
        assert up.ready["node"] and up.ready["sandboxes"]["isolation"]
        yield cli
        # a destroyed session has only ordered the deletion of its box
        wait_until(lambda: not _boxes(cli), "the deletion of all boxes")


def _boxes(cli: Cli) -> list[str]:
    """The sandboxes that may have a box."""
    listed = cli.here("sandboxes", "--json").lines
    return [it["sandbox"] for it in listed if it["state"] in ("intended", "ready", "paused")]


@pytest.fixture(scope="session")
def team_app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with agents that call each other."""
    path = tmp_path_factory.mktemp("team") / "team.py"
    path.write_text(TEAM)
    return path


@pytest.fixture(scope="session")
def team(tmp_path_factory: pytest.TempPathFactory, team_app: Path) -> Iterator[Cli]:
    """Commands in a home where ``sandstream up team.py`` runs."""
    with ScriptedModel(conversations=SCRIPTS, strict=False) as model:
        cli = Cli(tmp_path_factory.mktemp("managed") / "home", model.base_url)
        with cli.service("up", str(team_app), "--no-sandbox"):
            yield cli


@pytest.fixture
def cli(tmp_path: Path, model_url: str) -> Cli:
    """Commands in a home of one's own, where nothing runs."""
    return Cli(tmp_path / "home", model_url)


@pytest.fixture
def finished(served: Cli) -> str:
    """The id of a run that has just completed: lists of what is going on forget old ones."""
    done = served("submit", "assistant", "How is the weather?", "--wait", "--json")
    assert done.code == 0, done
    run_id: str = done.one["run_id"]
    return run_id
