"""The settings of a run that concern sandboxes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from sandstream.sandbox import (
    LocalSnapshotSpec,
    SandboxArchiveLimits,
    SandboxConcurrencyLimits,
    SandboxRunConfig,
)
from sandstream.sandbox.session.sandbox_client import BaseSandboxClientOptions
from sandstream.sandbox.snapshot import BusSnapshot


def test_defaults() -> None:
    config = SandboxRunConfig()
    assert config.concurrency_limits == SandboxConcurrencyLimits(4, 4)
    assert (config.archive_limits, config.cwd, config.checkpoint) == (None, None, "end")
    assert SandboxArchiveLimits() == SandboxArchiveLimits(1024**3, 4 * 1024**3, 100_000)


def test_dicts_become_what_they_stand_for() -> None:
    config = SandboxRunConfig(
        manifest={"root": "/w"},
        snapshot={"type": "local", "base_path": "/snapshots"},
        concurrency_limits={"manifest_entries": None},
        archive_limits={"max_members": 5},
        cwd=Path("a/./b"),
    )
    assert config.manifest is not None and config.manifest.root == "/w"
    assert config.snapshot == LocalSnapshotSpec(base_path=Path("/snapshots"))
    assert config.concurrency_limits.manifest_entries is None
    assert config.archive_limits is not None and config.archive_limits.max_members == 5
    assert config.cwd == "a/b"
    named = SandboxRunConfig(snapshot={"type": "bus", "id": "s", "tree": "t"})
    assert named.snapshot == BusSnapshot(id="s", tree="t")


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"cwd": "../x"}, ValueError, "cwd"),
        ({"concurrency_limits": {"local_dir_files": 0}}, ValueError, "local_dir_files"),
        ({"archive_limits": {"max_input_bytes": 0}}, ValueError, "max_input_bytes"),
        ({"archive_limits": {"nope": 1}}, TypeError, "unknown settings: nope"),
        ({"concurrency_limits": 3}, TypeError, "not int"),
        ({"checkpoint": "always"}, ValueError, "'end', 'turn', 'never'"),
        ({"snapshot": {"type": "zz"}}, ValueError, "zz"),
    ],
)
def test_what_cannot_work_is_refused(
    settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        SandboxRunConfig(**settings)


class Options(BaseSandboxClientOptions):
    type: Literal["test_backend"] = "test_backend"
    size: int = 1


class Client:
    backend_id = "test_backend"


class Unknown:
    backend_id = "test_backend_without_options"


def test_options_given_as_a_dict_become_those_of_the_client() -> None:
    assert SandboxRunConfig(client=Client(), options={"size": 2}).options == Options(size=2)
    assert SandboxRunConfig(client=Unknown(), options={"size": 2}).options == {"size": 2}
    assert SandboxRunConfig(options={"size": 2}).options == {"size": 2}
    with pytest.raises(ValueError, match="'other'"):
        SandboxRunConfig(client=Client(), options={"type": "other"})
    with pytest.raises(TypeError, match="unknown settings: sise"):
        SandboxRunConfig(client=Client(), options={"sise": 2})
