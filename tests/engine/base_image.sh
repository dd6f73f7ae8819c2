#!/bin/bash
# Make the images of the tests on the engine of DOCKER_HOST, from packages of this machine:
#   sandstream-test:python    bash, coreutils, python3, git, curl; users root and user (1000)
#   sandstream-test:busybox   busybox and nothing else
# Images that are there already stay. The archives are kept in the cache.
set -euo pipefail
export LC_ALL=C
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sandstream-engine
socket=${DOCKER_HOST#unix://}
has() { curl -sf --unix-socket "$socket" "http://engine/images/$1/json" >/dev/null; }
import() { # import NAME FILE CHANGE...: the engine itself, as the command may be of another version
  local name=$1 file=$2 query
  shift 2
  query="fromSrc=-&repo=${name%:*}&tag=${name#*:}"
  for change in "$@"; do query+="&changes=$(printf '%s' "$change" | sed 's/ /%20/g; s/"/%22/g; s/\[/%5B/g; s/\]/%5D/g')"; done
  curl -sf --unix-socket "$socket" -H 'Content-Type: application/x-tar' -T "$file" -X POST \
    "http://engine/images/create?$query" >/dev/null
}
path='ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

accounts() { # accounts DIRECTORY SHELL
  mkdir -p "$1"/{etc,root,home/user,tmp,run,proc,sys,dev}
  printf 'root:x:0:0:root:/root:%s\nnobody:x:65534:65534::/nonexistent:/bin/false\nuser:x:1000:1000::/home/user:%s\n' \
    "$2" "$2" >"$1/etc/passwd"
  printf 'root:x:0:\nnogroup:x:65534:\nuser:x:1000:\n' >"$1/etc/group"
  chmod 1777 "$1/tmp"
  chown 1000:1000 "$1/home/user"
}

busybox_archive() { # busybox_archive FILE
  local root=$work/busybox program
  # the one that up.sh fetched is static; another one may need libraries that the image does not have
  program=$(find "$cache" -path '*/root/bin/busybox' -print -quit)
  program=${program:-$(command -v busybox)}
  if ldd "$program" >/dev/null 2>&1; then
    echo "[engine] $program needs libraries: install busybox-static" >&2
    exit 1
  fi
  accounts "$root" /bin/sh
  mkdir -p "$root/bin"
  cp "$program" "$root/bin/busybox"
  for name in $("$program" --list); do [ "$name" = busybox ] || ln -s busybox "$root/bin/$name"; done
  tar -C "$root" -cf "$1" .
}

python_archive() { # python_archive FILE: the closure of a few installed packages, without documents
  local root=$work/python
  apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances bash dash coreutils grep sed tar gzip findutils procps mawk libc-bin \
    base-files util-linux bsdutils ca-certificates python3 git curl | grep -E '^[a-z0-9]' | sort -u >"$work/all"
  xargs dpkg-query -W -f '${binary:Package}\t${db:Status-Abbrev}\n' <"$work/all" 2>/dev/null |
    awk '$2 == "ii" {print $1}' | grep -v -E '^(perl|libperl|debconf|dpkg|libc6-dev|systemd|adduser|passwd|login|git-man)' |
    sort -u >"$work/packages" || true
  xargs dpkg-query -L <"$work/packages" 2>/dev/null | grep '^/' | grep -v -E \
    '^/usr/share/(man|doc|locale|info|lintian|bash-completion|bug|gitweb)|/python3(\.[0-9]+)?/(test|idlelib|lib2to3)|/__pycache__|^/\.$|^/(proc|sys|dev)(/|$)' \
    >"$work/files"
  # what packages make when they are installed
  ls -d /usr/bin/awk /etc/alternatives/awk /etc/ssl/certs/ca-certificates.crt /usr/bin/python3 \
    /etc/localtime /bin /lib /lib64 /sbin >>"$work/files" 2>/dev/null || true
  accounts "$root" /bin/bash
  printf 'hosts: files dns\npasswd: files\ngroup: files\n' >"$root/etc/nsswitch.conf"
  (cd "$root" && find . -mindepth 1 | sed 's#^\./##' | sort) >"$work/own"
  # an archive for the engine names no path twice, and /bin/x is /usr/bin/x
  sed -E 's#^/(bin|sbin|lib|lib64)/#/usr/\1/#; s#^/##' "$work/files" | sort -u | comm -23 - "$work/own" >"$work/theirs"
  tar -C / --no-recursion --ignore-failed-read -cf "$1" -T "$work/theirs" 2>/dev/null || true
  tar -C "$root" -rf "$1" --no-recursion -T "$work/own"
}

mkdir -p "$cache"
packages=$(md5sum /var/lib/dpkg/status 2>/dev/null | cut -c 1-12)
for kind in busybox python; do
  if has "sandstream-test:$kind"; then continue; fi
  file=$cache/$kind-$packages.tar
  if [ ! -e "$file" ]; then
    rm -f "$cache/$kind"-*.tar
    "${kind}_archive" "$work/$kind.tar"
    mv "$work/$kind.tar" "$file"
  fi
  shell=/bin/sh
  if [ $kind = python ]; then shell=/bin/bash; fi
  import "sandstream-test:$kind" "$file" "$path" 'ENV LANG=C.UTF-8' "CMD [\"$shell\"]"
  echo "[engine] made sandstream-test:$kind" >&2
done
