"""The first script in a box without an agent: its directories, and what its login shell is like."""

from __future__ import annotations

from sandstream_providers.hosted.accounts import with_accounts
from sandstream_providers.hosted.handshake import ROOT_SCRIPT, no_root
from sandstream_providers.hosted.shells import VendorShell
from sandstream_providers.interface import BoxSpec, ProviderError

_PREPARE = (
    r"""
say() { printf '%s\0%s\0' "$1" "$2"; }
F=${HOME:?}/.sandstream
(umask 077; mkdir -p "$F/shell") || exit 2
"""
    + ROOT_SCRIPT
    + r"""
read -r boot </proc/sys/kernel/random/boot_id 2>/dev/null
read -r up </proc/1/stat 2>/dev/null
set -- ${up##*) }
printf '%s\0' READY "$F" "$boot.${20}"
printf '%s\0' "HOME=$HOME" "PATH=$PATH" "LANG=${LANG:-C.UTF-8}" "USER=${USER:-$(id -un)}"
"""
)
_TIMEOUT_S = 30.0


async def prepared(shell: VendorShell, spec: BoxSpec) -> tuple[str, dict[str, str], str]:
    """Our folder in the box, the environment of commands, and the name of this start of the box."""
    root = spec.root.replace("'", "'\\''")
    script = with_accounts(spec, f"ROOT='{root}'\n{_PREPARE}")
    answer = await shell.answered(script, timeout_s=_TIMEOUT_S)
    words = answer.stdout.decode(errors="surrogateescape").split("\0")
    if "NOROOT" in words:
        raise no_root(spec.root, words[words.index("NOROOT") + 1])
    if answer.code or "READY" not in words:
        why = answer.stderr.decode(errors="replace").strip()
        raise ProviderError(f"the sandbox cannot be prepared: {why or answer.code}")
    folder, boot, *pairs = words[words.index("READY") + 1 :]
    env = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return folder, env, boot
