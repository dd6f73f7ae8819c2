"""One installation for all command-line tests: a model, a home, ``up`` with an app."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import APP, Cli

from sandstream.testing import ScriptedModel, error, script_for, text, tool_call


@pytest.fixture(scope="session")
def model_url() -> Iterator[str]:
    weather = [tool_call("get_weather", {"city": "Paris"}), text("It is sunny in Paris.")]
    script = [
        script_for("be slow", [text("Late.").after(120)]),
        script_for("hang", [tool_call("get_weather", {"city": "Atlantis"}), text("Wet.")]),
        script_for("break", [error(400, code="bad", message="No such luck.").forever()]),
        script_for("for ever", [tool_call("get_weather", {"city": "Bern"})] * 9),
        script_for("escape", [text("red \x1b[31malert\x1b[0m")]),
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
