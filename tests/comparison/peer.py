"""The peer's own environment: `openai-agents`, pinned, beside our venv and never in it."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

REQUIREMENT = "openai-agents[docker]==0.24.0"
REPOSITORY = Path(__file__).resolve().parents[2]
ENVIRONMENT = REPOSITORY / ".venv-peer"


def peer_python() -> Path:
    """The interpreter of the peer's environment; made on first use, which needs PyPI."""
    ENVIRONMENT.mkdir(exist_ok=True)
    (ENVIRONMENT / ".gitignore").write_text("*\n")
    stamp = ENVIRONMENT / "installed"
    wanted = f"{REQUIREMENT}\n{sys.version}\n"
    with (ENVIRONMENT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            _run(sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT / "v"))
            _run(str(_python()), "-m", "pip", "install", "--quiet", REQUIREMENT)
            stamp.write_text(wanted)
    return _python()


def _python() -> Path:
    return ENVIRONMENT / "v" / "bin" / "python"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"the peer's environment could not be made ({' '.join(command)}); it needs PyPI:\n"
            f"{done.stdout}{done.stderr}"
        )
