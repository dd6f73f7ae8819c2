"""Every example and the demo, run as a user runs them: as processes, without a key."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.engines import engine
from support.nats_server import NatsServer
from support.processes.leftovers import wait_until_none
from vendors.shared import shared

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FOREIGN = ("OPENAI_", "NATS_", "SANDSTREAM_", "AZURE_", "DAYTONA_", "E2B_")

ALONE = {
    "01_hello_tools.py": "Oslo has snow at -4 °C, Cairo sun at 31 °C.",
    "02_streaming.py": "2 turns, 67 characters",
    "04_structured_output.py": "remind them of 199.50 EUR",
    "05_webhook_actor.py": "the receiver got: {'run': ",
    "08_data_analyst.py": "- lamp: 2454.00 EUR\n- chair: 1635.00 EUR\n- desk: 620.00 EUR\n\n",
    "09_repo_review.py": "REVIEW.md, from the saved workspace\n# Review\n\n- `prices.py:5` divides",
    "10_sandbox_session.py": "after the fork:    written in the first session",
    "11_shell.py": "Alta,-11\\n'\nAlta was coldest, at eleven below zero.\n",
    "12_multi_turn.py": "There are two.\nbooks.txt has 2 lines\n",
    "14_handoffs.py": "Letter writer: Dear friends, the south brought 520 euros",
    "15_agents_as_tools.py": '"risk": "high"}\n{"finding": "nothing is tested", "risk": "medium',
    "18_tracing.py": "        function forecast\n          custom look into the almanac\n",
    "19_memory.py": "One line, as you like it.\n## User preferences\n- minimal patches\n",
    "20_shared_memory.py": "-- The shop opens at 9.\n+- The shop opens at 10.\n",
    "24_sessions.py": "(from turn 1): 4 items, sleeping\nback at turn 1, 4 items\n",
    "16_custom_capability.py": "serving\n<h1>Open on Sunday</h1>\nVisitors",
}
TOGETHER = {
    "03_survive_a_crash.py",
    "06_worker_app.py",
    "07_plain_nats.py",
    "13_pause_and_resume.py",
    "17_approvals.py",
    "21_docker_sandbox.py",
    "22_daytona_sandbox.py",
    "23_e2b_sandbox.py",
}


@pytest.fixture(scope="module")
def roots() -> Iterator[list[Path]]:
    """The directories of all programs. Nothing of them is left when the last one has ended: the
    private server stops after two seconds, so it is waited for once, not for each of them.
    """
    found: list[Path] = []
    yield found
    left = [line for root in found for line in wait_until_none(root, within_s=20, files=False)]
    assert left == []


@pytest.fixture
def environ(tmp_path: Path, roots: list[Path]) -> dict[str, str]:
    """A user's environment without keys and without a NATS server; all state below ``tmp_path``."""
    roots.append(tmp_path)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return kept | {
        "SANDSTREAM_HOME": str(tmp_path / "state"),
        # the actors may stop before they have deleted a box: it ends by itself
        "SANDSTREAM_SANDBOX_GRACE_S": "15",
        "TMPDIR": str(tmp_path),
        "PYTHONWARNINGS": "error",
        "PYTHONUNBUFFERED": "1",
    }


def run(
    environ: dict[str, str], *command: str, within_s: float = 50, cwd: Path | None = None
) -> str:
    """What the program said on stdout; it must succeed and leave stderr to talk, not to errors."""
    done = subprocess.run(
        [sys.executable, *command],
        env=environ,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


@contextmanager
def started(environ: dict[str, str], *command: str) -> Iterator[str]:
    """A process that has said its first line, stopped with SIGTERM at the end."""
    process = subprocess.Popen(
        [sys.executable, *command],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline().strip()
        assert first, f"{command} did not start: {process.communicate()[1]}"
        yield first
    finally:
        process.terminate()
        _, said = process.communicate(timeout=20)
    assert "Traceback" not in said, said


def test_each_example_is_run_here_and_listed() -> None:
    numbered = {file.name for file in EXAMPLES.glob("[0-9]*.py")}
    assert numbered == ALONE.keys() | TOGETHER
    readme = (EXAMPLES / "README.md").read_text()
    assert [name for name in numbered if f"[{name}]({name})" not in readme] == []


@pytest.mark.parametrize("example", ALONE)
def test_example(example: str, environ: dict[str, str], tmp_path: Path) -> None:
    assert ALONE[example] in run(environ, str(EXAMPLES / example))
    assert [it.name for it in tmp_path.iterdir()] == ["state"], "it removes its temporary files"


def test_a_program_that_dies_goes_on_at_the_second_start(environ: dict[str, str]) -> None:
    program = [sys.executable, str(EXAMPLES / "03_survive_a_crash.py")]
    first = subprocess.run(program, env=environ, capture_output=True, timeout=50, check=False)
    assert first.returncode == -signal.SIGKILL, first.stderr.decode()
    for _ in range(2):  # the second start completes the run, a third one only reads it
        said = run(environ, program[1])
        assert said.count("shipped order-17") == 1
        assert "The card was charged once." in said


def test_a_workspace_outlives_the_program(environ: dict[str, str], tmp_path: Path) -> None:
    program = (str(EXAMPLES / "13_pause_and_resume.py"), str(tmp_path / "diary.json"))
    assert run(environ, *program) == "made a new workspace\n2 days in the diary\n"
    assert run(environ, *program) == "went on in the saved workspace\n3 days in the diary\n"


def test_a_payment_waits_for_the_second_start(environ: dict[str, str], tmp_path: Path) -> None:
    program = (str(EXAMPLES / "17_approvals.py"), str(tmp_path / "state.json"))
    assert run(environ, *program).startswith('Clerk wants to call pay({"euros":70')
    said = run(environ, *program)
    assert said == "1200 EUR\npaid 70 EUR to the baker\nThe baker has the money.\n"


@pytest.fixture
def deployed(nats_server: NatsServer, environ: dict[str, str]) -> Iterator[dict[str, str]]:
    """The agents of 06_worker_app.py on a server, with the scripted model; how to reach them."""
    environ = environ | {"NATS_URL": nats_server.url}
    run(environ, "-m", "sandstream.cli", "setup")
    with started(environ, str(EXAMPLES / "scripted_model.py"), "--port", "0") as model_url:
        cli = ("-m", "sandstream.cli")
        with (
            started(environ | {"OPENAI_BASE_URL": model_url}, *cli, "actor", "harness", "--json"),
            started(environ, *cli, "worker", str(EXAMPLES / "06_worker_app.py"), "--json"),
        ):
            yield environ


def test_deployed_agents(deployed: dict[str, str]) -> None:
    question = ("support", "Where is order 17?", "--wait", "--timeout", "40")
    said = run(deployed, "-m", "sandstream.cli", "submit", *question)
    assert said.strip() == "Order 17 is packed and leaves tomorrow."
    plain = run(deployed, str(EXAMPLES / "07_plain_nats.py"), "Are you open on Sunday?")
    assert plain.strip() == "completed: We are closed on Sundays."


def test_the_analyst_from_the_command_line(environ: dict[str, str], tmp_path: Path) -> None:
    """On a copy of the user's own directory; what it made is read back from the checkpoint."""
    data = tmp_path / "mine" / "data"
    data.mkdir(parents=True)
    (data / "sales.csv").write_text("month,product,units,price\n1,lamp,3,10\n1,chair,1,20\n")
    cli = ("-m", "sandstream.cli")
    with started(environ, str(EXAMPLES / "scripted_model.py"), "--port", "0") as model_url:
        where = ("--workspace", "mine", "--key", "best-1", "--quiet")
        app = str(EXAMPLES / "08_data_analyst.py")
        asked = environ | {"OPENAI_BASE_URL": model_url}
        run(asked, *cli, "run", app, "What sold best?", *where, cwd=tmp_path)
    report = run(environ, *cli, "artifacts", "get", "best-1", "report.md", "-o", "-")
    assert report == "lamp 30\nchair 20\n"
    assert not (data.parent / "report.md").exists(), "the agent worked on a copy"


@pytest.mark.timeout(300)  # the first test that needs an engine starts it
@pytest.mark.parametrize("image", [engine.PYTHON, engine.BUSYBOX])
def test_a_container_instead_of_a_local_sandbox(environ: dict[str, str], image: str) -> None:
    environ |= {"DOCKER_HOST": engine.ensure(), "SANDBOX_IMAGE": image}
    said = run(environ, str(EXAMPLES / "21_docker_sandbox.py"))
    assert "no network: lo\n--- in the next container\nAda\nGrace\nMary\n" in said


def test_without_an_engine_the_example_says_so(environ: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "21_docker_sandbox.py")],
        env={**environ, "DOCKER_HOST": f"unix://{tmp_path}/none.sock"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("there are no Docker sandboxes here: ")
    assert "Traceback" not in done.stderr


@pytest.mark.timeout(180)  # three programs, on a machine that may be busy
def test_a_box_at_daytona_waits_for_the_second_start(
    environ: dict[str, str], tmp_path: Path
) -> None:
    server = shared("daytona")
    program = (str(EXAMPLES / "22_daytona_sandbox.py"), str(tmp_path / "garden.json"))
    environ |= server.env
    first, second = (run(environ, *program).splitlines() for _ in range(2))
    assert first[0] == "made a box" and first[2] == "a tulip"
    assert second[:2] == ["found the box again", first[1]]
    assert second[2:4] == ["a tulip", "a tulip"]
    assert [it.state for it in server.boxes()] == ["stopped"]
    assert run(environ, *program, "--remove") == "the box is gone\n"
    assert server.boxes() == []


def test_a_workspace_moves_to_e2b_and_back(environ: dict[str, str]) -> None:
    server = shared("e2b")
    names = {"PYTHONPATH": str(Path(__file__).with_name("names"))}
    said = run(environ | server.env | names, str(EXAMPLES / "23_e2b_sandbox.py"))
    assert "--- at E2B\n   serving\n   <h1>The bakery opens on Sunday.</h1>\n" in said
    assert said.endswith("--- on this machine again\n   index.html news.txt served.txt\n")
    assert server.boxes() == []


SWAPPED = {
    "11_shell.py": "daytona",
    "12_multi_turn.py": "e2b",
    "14_handoffs.py": "e2b",
    "15_agents_as_tools.py": "daytona",
    "16_custom_capability.py": "daytona",
    "19_memory.py": "e2b",
}


@pytest.mark.timeout(120)  # on a machine that may be busy
@pytest.mark.parametrize("example", SWAPPED)
def test_a_local_example_with_the_client_of_a_vendor(
    environ: dict[str, str], tmp_path: Path, example: str
) -> None:
    """Only the import and the options change."""
    vendor = SWAPPED[example]
    server, program = shared(vendor), tmp_path / example
    text = (EXAMPLES / example).read_text()
    text = text.replace("sandstream.sandbox.sandboxes", "sandstream.extensions.sandbox")
    text = text.replace(
        "UnixLocalSandbox", {"daytona": "Daytona", "e2b": "E2B"}[vendor] + "Sandbox"
    )
    if vendor == "e2b":  # its options are not optional
        options = 'options=E2BSandboxClientOptions(sandbox_type="e2b")'
        text = text.replace(
            "import E2BSandboxClient", "import E2BSandboxClientOptions, E2BSandboxClient"
        )
        text = text.replace(
            "SandboxRunConfig(client=client)", f"SandboxRunConfig(client=client, {options})"
        )
        text = text.replace("client.create(", f"client.create({options}, ")
    program.write_text(text)
    since = len(server.journal())
    said = run(environ | server.env | {"PYTHONPATH": str(EXAMPLES)}, str(program), within_s=100)
    assert ALONE[example] in said
    assert server.journal(since) and server.boxes() == []


@pytest.mark.parametrize(
    ("example", "vendor", "variable"),
    [
        ("22_daytona_sandbox.py", "Daytona", "DAYTONA_API_KEY"),
        ("23_e2b_sandbox.py", "E2B", "E2B_API_KEY"),
    ],
)
@pytest.mark.parametrize("key", [None, "wrong"])
def test_without_a_key_the_example_says_what_to_set(
    environ: dict[str, str], tmp_path: Path, example: str, vendor: str, variable: str, key: str
) -> None:
    environ |= shared(vendor.lower()).env
    del environ[variable]
    if key is not None:
        environ[variable] = key
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example), str(tmp_path / "state.json")],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"there are no sandboxes at {vendor} here: "), done.stderr
    assert variable in done.stderr
    assert "Traceback" not in done.stderr


def test_the_plain_client_says_that_there_is_no_server(environ: dict[str, str]) -> None:
    with socket.socket() as taken:  # bound, and nothing listens
        taken.bind(("127.0.0.1", 0))
        url = f"nats://127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, str(EXAMPLES / "07_plain_nats.py")]
        done = subprocess.run(
            command, env=environ | {"NATS_URL": url}, capture_output=True, text=True, timeout=50
        )
    assert done.returncode == 1
    assert f"there is no NATS server at {url}: start one with the agents" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_scripted_model_says_that_its_port_is_taken(environ: dict[str, str]) -> None:
    program = str(EXAMPLES / "scripted_model.py")
    with started(environ, program, "--port", "0") as url:
        port = url.removeprefix("http://127.0.0.1:").removesuffix("/v1")
        command = [sys.executable, program, "--port", port]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=50)
    assert done.returncode == 1
    assert done.stderr.startswith(f"cannot listen on port {port}: ")
    assert "Traceback" not in done.stderr


def test_the_plain_client_uses_none_of_our_code() -> None:
    text = (EXAMPLES / "07_plain_nats.py").read_text()
    assert re.findall(r"^(?:from|import) (sandstream\w*)", text, re.MULTILINE) == []


@pytest.mark.timeout(120)
def test_demo(environ: dict[str, str]) -> None:
    said = run(environ, str(EXAMPLES / "demo.py"), within_s=110)
    assert "both harness processes are gone" in said
    assert "the hut was booked once" in said
    assert "the command has its one result: times begun: 1" in said
    assert "3 runs, 6 model answers in the log" in said
    assert max(map(len, said.splitlines())) <= 100
    assert "\x1b" not in said
