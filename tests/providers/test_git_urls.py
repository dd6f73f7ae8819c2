"""Addresses of repositories: what they name, and what of them may be shown."""

from __future__ import annotations

import pytest
from sandstream_providers.git_urls import GitUrl, parse_git_url, shown_url, without_credentials

GOOD = {
    "https://github.com/a/b.git": GitUrl("https", "github.com", 443, "/a/b.git"),
    "https://good.org@127.0.0.1/x": GitUrl("https", "127.0.0.1", 443, "/x"),
    "https://u:p@q@host:8443/x": GitUrl("https", "host", 8443, "/x"),
    "http://[::1]:80/x": GitUrl("http", "::1", 80, "/x"),
    "http://2130706433/": GitUrl("http", "2130706433", 80, "/"),
    "http://host.#@other/": GitUrl("http", "host.", 80, "#@other/"),
    "git@host:path/x": GitUrl("ssh", "host", 22, "path/x"),
    "git@[::1]:path": GitUrl("ssh", "::1", 22, "path"),
    "host:path": GitUrl("ssh", "host", 22, "path"),
    "ssh://git@host:2222/x": GitUrl("ssh", "host", 2222, "/x"),
    "git://host/x": GitUrl("git", "host", 9418, "/x"),
    "file:///srv/a b": GitUrl("file", "", 0, "/srv/a b"),
}
BAD = [
    *("ext::sh -c true", "ext::sh", "fd::17", "/srv/x", "./x", "x", "", "-u", "--upload-pack=x"),
    *("https:///x", "https://u@/x", "https://a b/x", "https://good.org\\@127.0.0.1/x"),
    *("https://127%2e0.0.1/x", "https://host:99999/x", "https://host:0/x", "https://host:x/"),
    *("ftp://host/x", "HTTP://host/x", "git+ssh://host/x", "https://[::1/x", "https://$(id)/x"),
    *("https://-oProxyCommand=x/x", "-oProxyCommand=x:y", "a`id`:x", "https://host/\0", "\nhost:x"),
]
SECRET = "t0psecret"


@pytest.mark.parametrize("url", GOOD)
def test_parts(url: str) -> None:
    assert parse_git_url(url) == GOOD[url]


@pytest.mark.parametrize("url", BAD)
def test_what_is_none(url: str) -> None:
    with pytest.raises(ValueError, match=r"^(it|its|there) "):
        parse_git_url(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"https://u:{SECRET}@host:1/x?token={SECRET}#{SECRET}", "https://host:1/x"),
        (f"https://{SECRET}@a@host/x", "https://host/x"),
        (f"ssh://{SECRET}@host/x", "ssh://host/x"),
        (f"{SECRET}@host:x", "host:x"),
        ("file:///srv/x", "file:///srv/x"),
        ("git@host:x", "host:x"),
    ],
)
def test_nothing_secret_is_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    for text in (f"fatal: unable to access '{url}': no", f"{url.split('host')[0]}host: denied"):
        assert SECRET not in without_credentials(text, url)


def test_nor_of_addresses_that_a_server_named() -> None:
    said = f"warning: redirecting to https://u:{SECRET}@other/x/\nfatal: no"
    assert without_credentials(said) == "warning: redirecting to https://other/x/\nfatal: no"
