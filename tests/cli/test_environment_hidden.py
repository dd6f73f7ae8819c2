"""The values of a sandbox's environment variables are shown nowhere; their names are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli.cli_process import Cli, wait_until
from sandstream_actors.secrets.patterns import MASK
from sandstream_actors.tracing.environment_values import text_without_values, without_values
from sandstream_bus.wire.sandboxes import Open, SandboxRequest, SandboxSpec, WorkspacePlan
from support.tracing.otlp_receiver import OtlpReceiver

from sandstream.testing import ScriptedModel, script_for, text, tool_call

VALUE = "planted harmless looking words 7391"
APP = f"""
from sandstream.sandbox import Manifest, SandboxAgent
from sandstream.sandbox.manifest import Environment

keeper = SandboxAgent(
    name="keeper",
    instructions="Work.",
    model="gpt-5",
    default_manifest=Manifest(environment=Environment(value={{"PLANTED": "{VALUE}"}})),
)
"""
SHOWN = [
    ["show", "RUN"],
    ["show", "RUN", "--events"],
    ["show", "RUN", "--json"],
    ["watch", "RUN"],
    ["watch", "RUN", "--json"],
    ["replay", "RUN"],
    ["replay", "RUN", "--json"],
    ["runs", "--json"],
    ["sandboxes", "--json"],
    ["sandboxes", "show", "RUN"],
    ["sandboxes", "show", "RUN", "--json"],
]


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[tuple[Cli, Path, OtlpReceiver]]:
    """An installation that keeps and exports all that it can."""
    app = tmp_path / "keeper.py"
    app.write_text(APP)
    asked = tool_call("exec_command", {"cmd": "echo ${#PLANTED} letters"})
    script = [script_for("count", [asked, text("Counted.")])]
    with ScriptedModel(conversations=script, strict=False) as model, OtlpReceiver() as receiver:
        cli = Cli(tmp_path / "home", model.base_url)
        cli.env |= receiver.environment()
        cli.env["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "true"
        with cli.service("up", str(app)):
            yield cli, app, receiver


def files_with(folder: Path, words: str) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if words.encode() in path.read_bytes()]


def test_a_planted_value_is_shown_nowhere(
    keeping: tuple[Cli, Path, OtlpReceiver], tmp_path: Path
) -> None:
    cli, app, receiver = keeping
    done = cli("submit", "keeper", "count", "--wait", "--json")
    assert done.code == 0, done
    run = done.one["run_id"]
    own = cli("run", str(app), "count", "--json")
    outputs = {"submit": done, "run --json": own, "run": cli("run", str(app), "count")}
    page = tmp_path / "page.html"
    assert cli("show", run, "--html", str(page)).code == 0
    for words in SHOWN:
        outputs[" ".join(words)] = cli(*[run if it == "RUN" else it for it in words])
    for command, output in outputs.items():
        assert output.code == 0, (command, output)
        assert VALUE not in output.out + output.err, command
    html = page.read_text()
    assert VALUE not in html
    assert "PLANTED" in html
    for command in ("show RUN --json", "sandboxes show RUN --json", "watch RUN --json"):
        assert f'"PLANTED":{{"value":"{MASK}"}}' in outputs[command].out, command
    letters = f"{len(VALUE)} letters"
    assert letters in html, "the box had the value, and contents are shown"
    wait_until(lambda: any(letters in str(span) for span in receiver.spans), "exported spans")
    assert VALUE not in str(receiver.spans)
    assert wait_until(lambda: files_with(cli.home / "traces", letters), "the trace store")
    assert files_with(cli.home / "traces", VALUE) == []
    assert files_with(cli.home, VALUE), "only the log has it"


REPO = {"path": "r", "url": "https://u:p@host/r?t=1", "ref": "main"}
SHOWN_REPO = REPO | {"url": "https://host/r"}
THEIRS = {
    "environment": {"A": "x", "B": {"value": "x", "more": 1}},
    "env": {"A": "x"},
    "parameters": {"environment": {"type": "string"}},
    "repos": [{"url": "https://u:p@host/r?t=1"}],
}
OURS: dict[str, Any] = {
    "spec": {"environment": {"A": {"value": "x"}, "B": {"secret": "S"}}},
    "repos": [REPO],
}
SHOWN_OURS: dict[str, Any] = {
    "spec": {"environment": {"A": {"value": MASK}, "B": {"secret": "S"}}},
    "repos": [SHOWN_REPO],
}


def test_what_is_hidden_of_a_message() -> None:
    """And what is not: outputs of users may use the same words."""
    spec = msgspec.convert({"environment": OURS["spec"]["environment"]}, SandboxSpec)
    plan = msgspec.convert({"repos": [REPO]}, WorkspacePlan)
    opened = Open(spec=msgspec.structs.replace(spec, plan=plan))
    request = SandboxRequest(op="o", action=opened)
    kept = msgspec.Raw(msgspec.json.encode([OURS, THEIRS]))
    shown = msgspec.to_builtins(without_values({"a": [request], "theirs": THEIRS}))
    assert shown["theirs"] == THEIRS
    (told,) = shown["a"]
    assert told["action"]["spec"]["environment"] == SHOWN_OURS["spec"]["environment"]
    assert told["action"]["spec"]["plan"]["repos"] == [SHOWN_REPO]
    assert opened.spec is not None and opened.spec.environment["A"].value == "x"
    assert "x" not in repr(opened.spec.environment)
    assert msgspec.json.decode(without_values(kept)) == [SHOWN_OURS, THEIRS]
    for hostile in (
        b'{"environment":1e400}',
        b'{"environment":' + b"[" * 9999 + b"]" * 9999 + b"}",
    ):
        assert msgspec.json.decode(without_values(msgspec.Raw(hostile))) == MASK
    assert text_without_values('{"do": "exec", "env": {"A": "x"}}') == (
        f'{{"do":"exec","env":{{"A":"{MASK}"}}}}'
    )
    assert text_without_values("no JSON") == "no JSON"
    assert text_without_values('{"a":  1}') == '{"a":  1}'
