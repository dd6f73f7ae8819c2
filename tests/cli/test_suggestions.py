"""What is mistyped is refused as before, and the error says what is near."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.cli_process import Cli

from sandstream.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["rnus"], "; did you mean runs?"),
        (["Submit"], "; did you mean submit?"),
        (["runs", "--staus", "failed"], "; did you mean --status?"),
        (["runs", "--staus=failed"], "; did you mean --status?"),
        (["runs", "--status", "faild"], "; did you mean failed?"),
        (["sandboxes", "exce", "x"], "; did you mean exec?"),
        (["sandboxes", "rm", "x", "--yse"], "; did you mean --yes?"),
        (["conversations", "shwo", "x"], "; did you mean show?"),
        (["parked", "redrve", "x/1"], "; did you mean redrive?"),
        (["actor", "sandbox", "--isolation", "requird"], "; did you mean required?"),
        (["--nats-ulr", "nats://127.0.0.1:1", "runs"], "; did you mean --nats-url?"),
        (["--home", "x", "--nats-ulr=nats://127.0.0.1:1", "runs"], "; did you mean --nats-url?"),
    ],
    ids=lambda it: " ".join(it) if isinstance(it, list) else "",
)
def test_words_of_the_grammar(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.endswith(f"{hint}\n"), said


@pytest.mark.parametrize("arguments", [["xyzzy"], ["runs", "--frobnicate"], ["runs", "extra"]])
def test_nothing_is_suggested_where_nothing_is_near(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "did you mean" not in capsys.readouterr().err


def test_kinds_of_actors_and_agents_of_a_file(cli: Cli, app: Path) -> None:
    kind = cli("actor", "hraness")
    assert (kind.code, kind.err.endswith("; did you mean harness?\n")) == (2, True), kind
    agent = cli("run", f"{app}:asistant", "hi")
    assert (agent.code, agent.err.endswith("; did you mean assistant?\n")) == (2, True), agent


def test_names_on_the_bus(served: Cli, finished: str) -> None:
    agent = served("submit", "asistant", "hi")
    assert (agent.code, agent.err.endswith("; did you mean assistant?\n")) == (3, True), agent
    swapped = finished[:-2] + finished[-1] + finished[-2] + "0"
    for command in (["show"], ["watch"], ["cancel"], ["approve"], ["sandboxes", "show"]):
        done = served(*command, swapped)
        assert done.code == 3 and f"; there is {finished}" in done.err, done
    prefix = served("show", finished[:-3])
    assert prefix.code == 3 and f"; there is {finished}" in prefix.err
    assert served("submit", "assistant", "hi", "--session", "customer-17", "--wait").code == 0
    conversation = served("conversations", "show", "custmer-17")
    assert conversation.code == 3
    assert conversation.err.endswith("; did you mean customer-17?\n"), conversation
