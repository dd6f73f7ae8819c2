"""Permissions, endpoints and accounts as values."""

from __future__ import annotations

import pytest

from sandstream.sandbox import ExecResult, ExposedPortEndpoint, FileMode, Group, Permissions, User


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("drwxr-x---", 0o40750),
        ("-rw-r--r--", 0o644),
        ("-rwsr-Sr-t", 0o745),
        ("-rwxr-xr-x+", 0o755),
        ("----------@", 0),
    ],
)
def test_permissions_are_read_as_ls_writes_them(text: str, mode: int) -> None:
    permissions = Permissions.from_str(text)
    assert permissions.to_mode() == mode
    assert Permissions.from_mode(mode) == permissions


@pytest.mark.parametrize("text", ["abc", "lrwxrwxrwx", "-rwxrwxrwxx", "-awx------", "-rwx---ZZZ"])
def test_other_texts_are_no_permissions(text: str) -> None:
    with pytest.raises(ValueError, match="permissions"):
        Permissions.from_str(text)


def test_permissions_have_the_text_form_of_ls() -> None:
    assert str(Permissions()) == "-rwx------"
    assert (
        repr(Permissions(directory=True).group_can(FileMode.READ | FileMode.EXEC)) == "drwxr-x---"
    )
    assert str(Permissions(owner=FileMode.NONE).others_can(FileMode.WRITE)) == "--------w-"
    assert {Permissions(), Permissions().owner_can(7)} == {Permissions()}


def test_accounts_are_equal_by_name() -> None:
    ann = User(name="ann")
    assert {Group(name="staff", users=[ann]), Group(name="staff", users=[])} == {
        Group(name="staff", users=[])
    }
    assert ann == User(name="ann")
    assert ann != Group(name="ann", users=[])


@pytest.mark.parametrize(
    ("endpoint", "scheme", "url"),
    [
        (ExposedPortEndpoint("h", 80), "http", "http://h/"),
        (ExposedPortEndpoint("h", 443, tls=True), "WS", "wss://h/"),
        (ExposedPortEndpoint("h", 443), "http", "http://h:443/"),
        (ExposedPortEndpoint("::1", 8080), "ws", "ws://[::1]:8080/"),
        (ExposedPortEndpoint("h", 1, True, "?x=y"), "http", "https://h:1/?x=y"),
        (ExposedPortEndpoint("h", 80, query="?"), "http", "http://h/"),
    ],
)
def test_an_endpoint_gives_urls(endpoint: ExposedPortEndpoint, scheme: str, url: str) -> None:
    assert endpoint.url_for(scheme) == url


def test_an_endpoint_knows_two_schemes() -> None:
    with pytest.raises(ValueError, match="'ftp'"):
        ExposedPortEndpoint("h", 80).url_for("ftp")


def test_a_result_is_ok_with_exit_code_zero() -> None:
    assert ExecResult(stdout=b"", stderr=b"", exit_code=0).ok()
    assert not ExecResult(stdout=b"", stderr=b"", exit_code=1).ok()
