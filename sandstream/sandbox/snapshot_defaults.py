"""The default directory for local snapshots on the caller's machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from sandstream_bus.environment import environment

from sandstream.sandbox.snapshot import LocalSnapshotSpec

_FOLDER = Path("sandstream", "sandbox", "snapshots")
_MAX_AGE_SECONDS = 30 * 24 * 60 * 60


def default_local_snapshot_base_dir(
    *,
    home: Path | None = None,
    env: Mapping[str, str] | None = None,
    platform: str | None = None,
) -> Path:
    """The state directory of the user's system: macOS or XDG."""
    user = Path.home() if home is None else home
    if (platform or sys.platform) == "darwin":
        return user / "Library" / "Application Support" / _FOLDER
    state = Path(environment(env).get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else user / ".local" / "state") / _FOLDER


def cleanup_stale_default_local_snapshots(
    base_path: Path,
    *,
    now: float | None = None,
    max_age_seconds: int = _MAX_AGE_SECONDS,
) -> None:
    """Remove snapshots that were last written more than ``max_age_seconds`` ago."""
    if max_age_seconds < 0 or not base_path.is_dir():
        return
    oldest = (time.time() if now is None else now) - max_age_seconds
    for path in base_path.glob("*.tar"):
        try:
            if path.is_file() and path.stat().st_mtime < oldest:
                path.unlink()
        except FileNotFoundError:
            # Another process cleans the same directory.
            continue


def resolve_default_local_snapshot_spec(
    *,
    home: Path | None = None,
    env: Mapping[str, str] | None = None,
    platform: str | None = None,
) -> LocalSnapshotSpec:
    """A spec for the default directory, which only the user may read."""
    base_path = default_local_snapshot_base_dir(home=home, env=env, platform=platform)
    base_path.mkdir(parents=True, exist_ok=True)
    base_path.chmod(0o700)
    return LocalSnapshotSpec(base_path=base_path)
