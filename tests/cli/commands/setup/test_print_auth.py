"""``sandstream setup --print-auth`` and ``--auth-dir``: without a server."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from cli.cli_process import Cli
from sandstream_bus.embedded.server_binary import find_server_binary


def loads(directory: Path, config: str) -> bool:
    """Does a server take it?"""
    (directory / "auth.conf").write_text(config)
    conf = directory / "server.conf"
    conf.write_text(f'include "./auth.conf"\njetstream {{ store_dir: "{directory}/store" }}\n')
    done = subprocess.run(
        [str(find_server_binary()), "-t", "-c", str(conf)], capture_output=True, timeout=20
    )
    return done.returncode == 0


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--grant", "alice=submit,follow"),
        ("--grant", "alice=submit:*,cancel:bob", "--grant", "w=worker:app,harness:gold"),
        ("--tenant", "acme=1GB", "--tenant", "globex", "--grant", "acme/bob=follow"),
        ("--prefix", "my.shop"),
    ],
    ids=" ".join,
)
def test_a_server_takes_what_is_printed(cli: Cli, tmp_path: Path, options: tuple[str, ...]) -> None:
    cli.env["NATS_URL"] = "nats://127.0.0.1:9"  # nobody is asked
    done = cli.here("setup", "--print-auth", *options)
    assert done.code == 0, done.err
    assert loads(tmp_path, done.out)


def test_passwords_are_new_each_time_and_nobody_has_two(cli: Cli) -> None:
    printed = [cli.here("setup", "--print-auth").out for _ in range(2)]
    found = [set(re.findall(r'password: "(\w+)"', it)) for it in printed]
    assert len(found[0]) == len(found[1]) == 9
    assert not found[0] & found[1]
    assert all(len(it) >= 40 for it in found[0])


def test_as_json(cli: Cli) -> None:
    alice, worker = cli.here(
        *("setup", "--print-auth", "--json"),
        *("--grant", "alice=submit", "--grant", "w=worker:app", "--prefix", "shop"),
    ).lines
    assert alice["account"] == "SHOP_USERS" and worker["account"] == "SHOP"
    assert alice["publish"] == ["shop.ask.alice.task.*"]
    assert alice["subscribe"] == ["_INBOX.alice.>"]
    assert alice["environment"] == {
        "NATS_USER": "alice",
        "NATS_PASSWORD": alice["environment"]["NATS_PASSWORD"],
        "NATS_INBOX_PREFIX": "_INBOX.alice",
        "SANDSTREAM_PREFIX": "shop",
        "SANDSTREAM_USER": "alice",
    }
    assert "SANDSTREAM_USER" not in worker["environment"]
    assert "$JS.API.CONSUMER.CREATE.SHOP_LOG.tools-app" in worker["publish"]


def test_a_directory_keeps_passwords_and_secrets(cli: Cli, tmp_path: Path) -> None:
    auth = tmp_path / "auth"
    assert cli.here("setup", "--auth-dir", str(auth), "--grant", "a=submit").code == 0
    before = (auth / "a.env").read_text()
    again = cli.here(
        "setup", "--auth-dir", str(auth), "--grant", "a=submit,follow", "--grant", "b=follow"
    )
    assert again.code == 0 and again.out == ""
    assert (auth / "a.env").read_text() == before
    assert auth.stat().st_mode & 0o077 == 0
    assert (auth / "a.env").stat().st_mode & 0o077 == 0
    assert {it.name for it in auth.iterdir()} == {"a.env", "b.env", "auth.conf"}
    assert loads(tmp_path, (auth / "auth.conf").read_text())
    password = before.split("NATS_PASSWORD=")[1].split()[0]
    assert password in (auth / "auth.conf").read_text()
    assert password not in again.err


def test_a_directory_of_everybody_is_refused(cli: Cli, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    done = cli.here("setup", "--auth-dir", str(tmp_path))
    assert done.code == 2 and "chmod 700" in done.err
    assert not (tmp_path / "auth.conf").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--grant", "alice=boss"), r"no role 'boss'.*submit\[:USER\].*admin"),
        (("--grant", "alice=submit,"), "no role ''"),
        (("--grant", "alice"), "write NAME=ROLE,ROLE"),
        (("--grant", "alice="), "write NAME=ROLE,ROLE"),
        (("--grant", "Alice=submit"), "the user 'Alice' is not possible"),
        (("--grant", "a.b=submit"), r"the user 'a\.b' is not possible"),
        (("--grant", "*=submit"), "the user '\\*' is not possible"),
        (("--grant", "=submit"), "the user '' is not possible"),
        (("--grant", 'a"=submit'), "is not possible"),
        (("--grant", "a=cancel:B>"), "is not possible"),
        (("--grant", "a=worker:x.y"), "the pool"),
        (("--grant", "a=memory:x"), "takes nothing after a colon"),
        (("--grant", "a=submit,worker"), "either outside"),
        (("--grant", "a=submit", "--grant", "a=follow"), "two users 'a'"),
        (("--tenant", "Acme"), "'Acme' is not possible"),
        (("--tenant", "acme=lots"), "is not a size"),
        (("--tenant", "acme", "--tenant", "acme_users"), "two tenants"),
        (("--tenant", "acme", "--grant", "globex/a=submit"), "no tenant 'globex'"),
        (("--grant", "globex/a=submit"), "no tenant 'globex'"),
    ],
    ids=" ".join,
)
def test_bad_input_prints_nothing(
    cli: Cli, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    for how in (["--print-auth"], ["--auth-dir", str(tmp_path / "auth")]):
        done = cli.here("setup", *how, *options)
        assert done.code == 2 and re.search(said, done.err), done.err
        assert done.out == ""
    assert not (tmp_path / "auth").exists()


@pytest.mark.parametrize("option", [("--grant", "a=submit"), ("--tenant", "acme")], ids=" ".join)
def test_users_are_for_print_auth(cli: Cli, option: tuple[str, str]) -> None:
    done = cli.here("setup", *option)
    assert done.code == 2 and "--print-auth" in done.err
