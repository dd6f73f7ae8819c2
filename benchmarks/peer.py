"""The baseline's own environment: the OpenAI Agents SDK, installed with pip on first use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

VERSION = "0.24.0"
HOME = Path(__file__).parent / ".env-peer"


def python() -> str:
    """The interpreter of the environment with the baseline."""
    stamp = HOME / f"openai-agents-{VERSION}-docker-hosted"
    found = HOME / "bin" / "python"
    if not stamp.exists():
        print(f"making {HOME} (once, about a minute) ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(HOME)], check=True)
        packages = (f"openai-agents[daytona,e2b]=={VERSION}", "uvloop", "docker")
        subprocess.run([found, "-m", "pip", "install", "-q", *packages], check=True)
        stamp.touch()
    return str(found)
