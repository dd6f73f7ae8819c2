"""Repositories fetched for a box: by branch, tag and commit, and the ways it can fail."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from providers.local.local_boxes import local_provider, new_spec, said
from sandstream_providers.interface import GitFailed, PathEscapes

BIG = 3 * 1024 * 1024


def git(folder: Path, *argv: str) -> str:
    env = {
        **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }
    done = subprocess.run(
        ["git", *argv], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


class Repository:
    """Three commits; the first has no name but its own, the second is the tag, then the branch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        git(folder, "init", "-q", "-b", "main")
        (folder / "run.sh").write_text("echo one\n")
        (folder / "run.sh").chmod(0o755)
        (folder / "out").symlink_to("/etc/passwd")
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "er" / "file").write_bytes(os.urandom(BIG))
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", "one")
        self.first = git(folder, "rev-parse", "HEAD")
        (folder / "run.sh").write_text("echo two\n")
        git(folder, "commit", "-q", "-am", "two")
        git(folder, "tag", "v2")
        (folder / "run.sh").write_text("echo three\n")
        git(folder, "commit", "-q", "-am", "three")
        self.url = f"file://{folder}"


@pytest.fixture(scope="module")
def repository() -> Iterator[Repository]:
    """Where every user can read it, as a repository on a server."""
    folder = Path(tempfile.mkdtemp(prefix="sandstream-repository-"))
    folder.chmod(0o755)
    yield Repository(folder)
    shutil.rmtree(folder)


@pytest.mark.parametrize("isolation", ["required", "none"])
def test_branch_tag_commit_and_default(
    tmp_path: Path, repository: Repository, isolation: str
) -> None:
    async def main() -> None:
        async with local_provider(tmp_path, isolation=isolation) as provider:
            box = await provider.create(new_spec())
            for ref, word in {
                "main": "three",
                "": "three",
                "v2": "two",
                repository.first: "one",
                repository.first[:8]: "one",
            }.items():
                target = f"{box.root}/{word}/{ref or 'default'}"
                await provider.fetch_git(box, repository.url, ref, target)
                assert await said(box, f"cd {target} && ./run.sh") == f"{word}\n"
                assert await said(box, f"cd {target} && git status --porcelain") == ""
                assert await said(box, f"readlink {target}/out") == "/etc/passwd\n"
                assert await said(box, f"wc -c < {target}/deep/er/file") == f"{BIG}\n"
            assert not list((tmp_path / "sandboxes" / box.key).glob("git-*"))

    asyncio.run(main())


def test_over_the_network_though_the_box_has_none(tmp_path: Path, repository: Repository) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    base = repository.folder.parent
    options = ["--reuseaddr", "--export-all", "--listen=127.0.0.1", f"--port={port}"]
    argv = ["git", "-c", "safe.directory=*", "daemon", *options, "--verbose", f"--base-path={base}"]
    env = {**os.environ, "GIT_CONFIG_COUNT": "1"}
    env |= {"GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    with subprocess.Popen(argv, stderr=subprocess.PIPE, env=env) as daemon:
        try:
            assert daemon.stderr is not None
            assert b"Ready" in daemon.stderr.readline()

            async def main() -> None:
                async with local_provider(tmp_path) as provider:
                    box = await provider.create(new_spec())
                    url = f"git://127.0.0.1:{port}/{repository.folder.name}"
                    await provider.fetch_git(box, url, "v2", "/workspace/here")
                    assert await said(box, "here/run.sh") == "two\n"

            asyncio.run(main())
        finally:
            daemon.terminate()


def test_failures_say_what_they_are(tmp_path: Path, repository: Repository) -> None:
    hooked = repository.url
    cases = {
        (hooked, "no-such-branch"): "ref",
        (hooked, "deadbeef"): "ref",
        (hooked, "--upload-pack=touch"): "ref",
        ("file:///no/such/repository", "main"): "clone",
        ("https://127.0.0.1:1/nothing", "main"): "clone",
        ("ext::sh -c true", "main"): "clone",
        (str(repository.folder), "main"): "clone",
    }

    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            box = await provider.create(new_spec())
            for (url, ref), reason in cases.items():
                with pytest.raises(GitFailed) as caught:
                    await provider.fetch_git(box, url, ref, "/workspace/here")
                assert caught.value.data["reason"] == reason, (url, ref, caught.value)
            assert await said(box, "ls") == ""

    asyncio.run(main())


def test_a_planted_link_is_not_followed(tmp_path: Path, repository: Repository) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            box = await provider.create(new_spec())
            await said(box, "ln -s /tmp here")
            with pytest.raises(PathEscapes):
                await provider.fetch_git(box, repository.url, "v2", "/workspace/here/repo")
            assert await said(box, "ls /tmp") == ""

    asyncio.run(main())
