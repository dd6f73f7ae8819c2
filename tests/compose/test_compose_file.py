"""What compose.yaml promises, read off the file. `make compose-test` tries it on an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_is_confined_and_says_when_it_works(name: str) -> None:
    service = SERVICES[name]
    assert service["healthcheck"]["test"], "without it, `up --wait` returns too early"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    # the sandbox actor's container makes namespaces, and nobody else's does
    may_isolate = ["seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"]
    more = may_isolate if name == "sandbox" else []
    assert service["security_opt"] == ["no-new-privileges:true", *more]


def test_only_who_calls_models_gets_the_key() -> None:
    """The memory actor has a harness for its phases beside it."""
    holders = [name for name, service in SERVICES.items() if "OPENAI_API_KEY" in str(service)]
    assert holders == ["harness", "memory"]


def test_nats_keeps_its_log_and_listens_on_loopback_only() -> None:
    nats = SERVICES["nats"]
    assert nats["volumes"] == ["nats:/data"]
    assert all(port.startswith("127.0.0.1:") for port in nats["ports"])


def test_the_tracing_actor_keeps_its_store_and_exports_nowhere_by_itself() -> None:
    tracing = SERVICES["tracing"]
    assert "profiles" not in tracing
    assert tracing["volumes"] == ["traces:/var/lib/sandstream"]
    assert tracing["environment"]["SANDSTREAM_HOME"] == "/var/lib/sandstream"
    assert tracing["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"].endswith(":-}")


def test_the_viewer_is_asked_for_and_shows_itself_on_loopback_only() -> None:
    viewer = SERVICES["viewer"]
    assert viewer["profiles"] == ["viewer"]
    assert all(port.startswith("127.0.0.1:") for port in viewer["ports"])
    said = (ROOT / "deploy" / "viewer.env").read_text()
    assert "COMPOSE_PROFILES=viewer\n" in said
    assert "OTEL_EXPORTER_OTLP_ENDPOINT=http://viewer:4318\n" in said


def test_the_image_is_not_root_and_has_what_the_commands_name() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "\nUSER 10001:10001\n" in dockerfile
    assert "COPY examples /app/examples" in dockerfile
    let_in = (ROOT / ".dockerignore").read_text().splitlines()
    for line in dockerfile.splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert f"!{source}" in let_in, f"the build does not get {source}"
    for file in ("06_worker_app.py", "scripted_model.py"):
        assert (ROOT / "examples" / file).is_file()
