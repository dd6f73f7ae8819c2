#!/bin/bash
# Start a real Docker engine from Debian packages, without installing anything, and print how to
# reach it. An engine of this place that answers is left as it is.
#   eval "$(tests/engine/up.sh)"
#   tests/engine/up.sh --alone -- FLAGS   in a network of its own, without a bridge; FLAGS for dockerd
# ENGINE_HIDES is a directory that this engine sees empty, as an engine on another machine would.
# ENGINE_DISK_MB is the size of a disk of its own for its data, in memory.
# ENGINE_CONTAINERD: containerd keeps the images, as it does in new installations of Docker 29.
# ENGINE_HOME is the place of its socket, log and state; ENGINE_SUITE the Debian release of the engine.
set -euo pipefail
home=${ENGINE_HOME:-/tmp/sandstream-engine}
suite=${ENGINE_SUITE:-trixie}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sandstream-engine/$suite
alone=
if [ "${1:-}" = --alone ]; then alone=yes; shift; fi
if [ "${1:-}" = -- ]; then shift; fi
socket=$home/docker.sock
say() { echo "[engine] $*" >&2; }
answers() { curl -sf --max-time 5 --unix-socket "$socket" http://engine/_ping >/dev/null 2>&1; }
programs=$cache/root
tell() { # the machine's own docker command comes first, if it has one
  echo "export DOCKER_HOST=unix://$socket DOCKER_CONFIG=$home/config PATH=\"\$PATH:$programs/usr/bin\""
}
fail() { say "$*"; tail -n 20 "$home/log" >&2 2>/dev/null || true; exit 1; }
if answers; then tell; exit 0; fi
[ "$(id -u)" = 0 ] || fail "a Docker engine can be started by root only: start one yourself, and set DOCKER_HOST"
command -v apt-get >/dev/null || fail "only machines with apt can start an engine here: install Docker, and set DOCKER_HOST"

# --- the programs -----------------------------------------------------------------------------------
# A private list of packages, so that the machine's own sources stay as they are. The signatures count.
fetch() { # fetch RELEASE PACKAGE...
  local release=$1 state=$cache/apt-$2 source
  shift
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$cache/packages"
  source=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null || true; } |
    sed -nE 's/^URIs: *([^ ]+).*/\1/p; s/^deb +(\[[^]]*\] +)?([^ ]+) .*/\2/p' | grep -m 1 debian | sed 's#/*$##')
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $source $release main" >"$state/sources.list"
  local options=(-qq -o "Dir::Etc::SourceList=$state/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$state/lists" -o "Dir::Cache=$state/cache" -o Acquire::Check-Valid-Until=false
    -o Acquire::Languages=none -o APT::Sandbox::User=root -o APT::Update::Post-Invoke-Success=
    -o APT::Update::Post-Invoke= -o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false)
  apt-get "${options[@]}" update >&2
  (cd "$cache/packages" && apt-get "${options[@]}" download "$@" >&2)
}
if [ ! -e "$programs/.complete" ]; then
  say "fetching the packages, once"
  host=$(. /etc/os-release && echo "$VERSION_CODENAME")
  rm -rf "$programs" "$cache/packages"
  # The engine needs an old C library only, so a newer one than the machine's can be had. What is
  # linked to more must be the machine's own.
  newer=(docker.io containerd)
  # bookworm has the command in docker.io, and no compose that can be used
  if [ "$suite" != bookworm ]; then newer+=(docker-cli docker-compose docker-buildx); fi
  own=(runc tini iptables libip4tc2 libip6tc2 libxtables12 libnfnetlink0 libnetfilter-conntrack3
    libnftnl11 libmnl0 busybox-static)
  fetch "$host" "${own[@]}" &
  first=$!
  fetch "$suite" "${newer[@]}" &
  second=$!
  wait $first && wait $second || fail "the packages of the engine cannot be fetched"
  mkdir -p "$programs"
  find "$cache/packages" -name '*.deb' -print0 | xargs -0 -P "$(nproc)" -I{} dpkg -x {} "$programs"
  ln -sf xtables-nft-multi "$programs/usr/sbin/iptables"
  ln -sf xtables-nft-multi "$programs/usr/sbin/ip6tables"
  ln -sf tini "$programs/usr/bin/docker-init"
  rm -rf "$cache/packages"
  touch "$programs/.complete"
fi

# --- the engine -------------------------------------------------------------------------------------
mkdir -p "$home/config/cli-plugins"
ln -sf "$programs"/usr/libexec/docker/cli-plugins/* "$home/config/cli-plugins/"
# Of an engine that was killed: its containerd died with it, and a new one would wait for that process.
rm -f "$home/pid" "$home/exec/containerd/containerd.pid"
# Memory is several times faster than a disk, where there is enough.
data=$home/data
free_mb=$(df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 {print $4}')
if [ "${free_mb:-0}" -ge 4096 ]; then data=/dev/shm/$(basename "$home")-data; fi
echo "$data" >"$home/data-root"
if [ -n "${ENGINE_DISK_MB:-}" ] && ! mountpoint -q "$data"; then
  mkdir -p "$data"
  mount -t tmpfs -o "size=${ENGINE_DISK_MB}m" none "$data"
fi
libraries=$(echo "$programs"/usr/lib/*-linux-gnu)
flags=(--data-root "$data" --exec-root "$home/exec" --pidfile "$home/pid" -H "unix://$socket")
if [ -n "${ENGINE_CONTAINERD:-}" ]; then
  echo '{"features": {"containerd-snapshotter": true}}' >"$home/daemon.json"
  flags+=(--config-file "$home/daemon.json")
else
  flags+=(--storage-driver overlay2)
fi
network=()
if [ -n "$alone" ]; then
  flags+=(--bridge=none --iptables=false --ip6tables=false)
  network=(unshare --net)
  if [ -n "${ENGINE_HIDES:-}" ]; then
    network+=(--mount sh -c 'mount -t tmpfs none "$0" && exec "$@"' "$ENGINE_HIDES")
  fi
fi
# Nothing of this process may be seen in the engine's: it outlives the test that needed it first.
cd /
env -i "PATH=$programs/usr/sbin:$programs/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin" "HOME=$home" \
  "LD_LIBRARY_PATH=$libraries" "XTABLES_LIBDIR=$libraries/xtables" \
  setsid "${network[@]}" dockerd "${flags[@]}" "$@" >"$home/log" 2>&1 </dev/null &
engine=$!
for _ in $(seq 600); do
  if answers; then break; fi
  kill -0 "$engine" 2>/dev/null || fail "the engine has ended"
  sleep 0.05
done
answers || fail "the engine does not answer"
say "up, pid $(cat "$home/pid"), data in $data"
tell
