"""The first lines of all scripts, and the probe that asks a box once for its facts.

Directories below ``records``: ``jobs`` has one directory for each command, ``sessions`` links from
session numbers to jobs, ``live`` one file for each command that may be running, ``asked`` the first
request of each call, ``done`` the outcome of each change of files.
"""

from __future__ import annotations

import hashlib

import msgspec

from sandstream_providers.interface import ProviderError
from sandstream_providers.shell.channel import Answer, ShellSettings
from sandstream_providers.shell.quotes import assigned, assigned_all

BASICS = r"""
export LC_ALL=C TZ=UTC0
PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
umask 022
BOOT=unknown
{ read -r BOOT </proc/sys/kernel/random/boot_id; } 2>/dev/null
no() { echo "$1 $2"; exit 40; }
now() { read -r now _ </proc/uptime; now=$(( ${now%.*} * 100 + 1${now#*.} - 100 )); }
me() { read -r line </proc/$$/stat; set -- ${line##*) }; me=$$.${20}.$BOOT; }
alive() {
  case $1 in *".$BOOT") ;; *) return 1 ;; esac
  pid=${1%%.*} began=${1#*.} began=${began%%.*}
  { read -r line </proc/$pid/stat; } 2>/dev/null || return 1
  set -- ${line##*) }
  [ "$1" != Z ] && [ "$1" != X ] && [ "${20}" = "$began" ]
}
"""
"""``no``: refuse, with an error class and a reason. ``now``: hundredths of a second since the boot,
in a variable of this name. ``me``: names this process so that no later one has the same name.
``alive``: whether the process of such a name lives."""

PROBE = r"""
mkdir -p "$R/jobs" "$R/sessions" "$R/live" "$R/asked" "$R/done" || exit 1
if ! [ -s "$R/root" ]; then
  cd -P -- "$ROOT" || exit 1
  printf %s "$PWD" >"$R/root.$$" && mv "$R/root.$$" "$R/root" || exit 1
fi
printf 'A=1\0B=2\0' | grep -qz '^B=2' 2>/dev/null && echo grep_z
sleep 0.01 2>/dev/null && echo short_sleep
case $(stat -c %z "$R/root") in *.000000000*) ;; *.*) echo fine_times ;; esac
command -v script >/dev/null 2>&1 && echo script
for tool in setsid mkfifo tar awk stat find xargs sha256sum dd tail; do
  command -v $tool >/dev/null 2>&1 || echo "without:$tool"
done
echo
cat "$R/root"
"""


class BoxFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from box to box."""

    root: bytes
    """The workspace with all links followed: as it was before the first command could change where
    it leads."""
    has: frozenset[str]
    """Of ``grep_z`` (grep reads lines that end with zero bytes), ``short_sleep`` (parts of
    seconds), ``fine_times`` (stat shows them), ``script`` (there can be terminals)."""


class Basics:
    """The first lines of the scripts for one box."""

    def __init__(self, key: str, root: str, settings: ShellSettings) -> None:
        self.records = settings.records
        named = hashlib.sha256(f"{key}\n{settings.records}".encode()).hexdigest()[:32]
        self.mark = f"SANDSTREAM_BOX={named}"
        """In the environment of all its commands; no other box has it."""
        self._head = BASICS + assigned_all(R=settings.records)
        self._probe = self._head + assigned("ROOT", root) + PROBE

    def script(self, *parts: str, **values: str | bytes | int) -> str:
        """A whole script: the basics, values of variables, and what to do."""
        return self._head + assigned_all(**values) + "".join(parts)

    @property
    def probe(self) -> str:
        return self._probe

    def facts(self, answer: Answer) -> BoxFacts:
        """What the probe found. Raises ProviderError if this is no box for scripts."""
        said, _, root = answer.stdout.partition(b"\n\n")
        found = said.decode("ascii", "replace").split()
        without = [it.partition(":")[2] for it in found if it.startswith("without:")]
        if answer.code or not root or without:
            text = answer.stderr.decode("utf-8", "replace").strip()
            lacks = f"it has no {', '.join(without)}" if without else text or "no message"
            raise ProviderError(f"scripts cannot operate this sandbox: {lacks}")
        return BoxFacts(root=root, has=frozenset(found))
