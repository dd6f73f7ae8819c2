#!/bin/bash
# Stop the engine that up.sh started in ENGINE_HOME: its containers, itself, its mounts and its data.
# The programs stay in the cache. No error if there is none.
set -uo pipefail
home=${ENGINE_HOME:-/tmp/sandstream-engine}
[ -d "$home" ] || exit 0
api() { curl -s --max-time 30 --unix-socket "$home/docker.sock" "$@"; }
pid=$(cat "$home/pid" 2>/dev/null || true)
data=$(cat "$home/data-root" 2>/dev/null || echo "$home/data")
if [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; then
  for id in $(api 'http://engine/containers/json?all=1' | grep -o '"Id":"[0-9a-f]*"' | cut -d'"' -f4); do
    api -X DELETE "http://engine/containers/$id?force=1&v=1" >/dev/null
  done
  kill "$pid"
  for _ in $(seq 200); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  kill -9 "$pid" 2>/dev/null
fi
# what an engine leaves that was killed, or may be restarted without its containers
for file in "$home"/exec/containerd/containerd.pid "$home"/exec/*.pid; do
  left=$(cat "$file" 2>/dev/null) && grep -q "$home" "/proc/$left/cmdline" 2>/dev/null && kill -9 "$left"
done
for process in /proc/[0-9]*; do
  if { tr '\0' '\n' <"$process/cmdline"; } 2>/dev/null | grep -q -x -F "$home/exec/containerd/containerd.sock"; then
    kill -9 "${process#/proc/}" 2>/dev/null
  fi
done
for _ in 1 2 3; do
  grep -o -E " ($home|$data)(/[^ ]*)? " /proc/mounts | sort -r | while read -r place; do umount "$place" 2>/dev/null; done
done
rm -rf "$data" "$home"
