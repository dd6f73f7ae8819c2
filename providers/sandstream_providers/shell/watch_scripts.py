"""Watching commands, talking to them, ending and forgetting them, in the shell."""

from __future__ import annotations

IS_OVER = r"""
age() { age=$(( $(date +%s) - $(stat -c %Y "$1") )); }
is_over() {
  [ -s "$1/rc" ] && return
  if [ -s "$1/pid" ]; then
    read -r keeper _ <"$1/pid"
    ! alive "$keeper"
  elif ! [ -e "$1/lost" ]; then
    age "$1" 2>/dev/null
    [ ${age:-99} -gt 10 ]
  fi
}
"""
"""``is_over``: whether the command of this job's directory has ended, or will never start."""

ATTACH = r"""
J=$R/jobs/$N
[ -d "$J" ] || no NoSuchSession gone
"""

WATCH = r"""
look() {
  state=claimed began=
  if [ -s "$J/pid" ]; then
    read -r keeper began <"$J/pid"
    alive "$keeper" && state=running || state=lost
  elif [ -e "$J/lost" ]; then
    state=lost
  elif ! [ -s "$J/rc" ]; then
    age "$J"
    [ $age -gt 10 ] && echo >"$J/begun" && echo >"$J/lost" && state=lost
  fi
  [ -s "$J/rc" ] && state=exited
}
is_new() {
  set -- $(stat -c '%s %n' "$J"/out.* "$J"/err.* 2>/dev/null)
  while [ $# -gt 1 ]; do
    case $2 in *"/out."*) [ $(( $1 + ${2##*.} )) -gt $FROM ] && return ;; esac
    case $2 in *"/err."*) [ $(( $1 + ${2##*.} )) -gt $FROM_ERR ] && return ;; esac
    shift 2
  done
  return 1
}
watch() {
  now; until=$((now + BUDGET)) due=0 pause=0.01
  while look; [ $state = running ] || [ $state = claimed ]; do
    now
    if [ -n "$WAIT" ]; then
      [ $now -ge $(( ${DUE:-${began:-$now}} + WAIT )) ] && due=1 && break
    fi
    [ $now -ge $until ] && break
    [ -n "$LIVE" ] && is_new && break
    nap $pause
    case $pause in 0.01) pause=0.02 ;; 0.02) pause=0.03 ;; 0.03) pause=0.05 ;; *) pause=0.1 ;; esac
  done
}
report() {
  code=- why=- out_end=- err_end=- session=0
  [ -s "$J/session" ] && read -r session <"$J/session"
  [ $state = exited ] && read -r code why out_end err_end <"$J/rc"
  sizes= parts= left=$MOST
  [ $due = 0 ] && [ -z "$LIVE" ] && [ $state != exited ] && [ $state != lost ] && left=0
  for file in "$J"/out.* "$J"/err.*; do [ -s "$file" ] && sizes=1; done
  [ -n "$sizes" ] && sizes=$(cd "$J" && stat -c '%n %s' out.* err.* 2>/dev/null)
  set -- $sizes
  while [ $# -gt 1 ]; do
    from=$FROM
    case $1 in err.*) from=$FROM_ERR ;; esac
    skip=$((from - ${1#*.}))
    [ $skip -lt 0 ] && skip=0
    take=$(($2 - skip))
    [ $take -gt $left ] && take=$left
    [ $take -gt 0 ] && parts="$parts $1:$skip:$take" left=$((left - take))
    shift 2
  done
  echo "$state $session $code $why $due $out_end $err_end"
  echo $sizes
  echo $parts
  for part in $parts; do
    skip=${part#*:} take=${skip#*:} skip=${skip%:*} file=$J/${part%%:*}
    if [ $skip = 0 ]; then
      head -c $take "$file"
    else
      tail -c +$((skip + 1)) "$file" | head -c $take
    fi
  done
  [ $state = exited ] && echo >"$J/told"
  if [ $state = lost ] && [ -n "$MARK" ] && ! [ -e "$J/swept" ]; then
    sweep "$MARK" '' && echo >"$J/swept"
  fi
  :
}
watch
report
"""
"""Wait for the end or for news, then say how the command stands and what is new of its output:
facts, the files of output with their sizes, the parts that follow, and these parts. What a lost
command left running is ended. ``DUE``: what
``WAIT`` counts from, if not the start of the command."""

INTERACT = r"""
name=$(readlink "$R/sessions/$SESSION") || no NoSuchSession gone
J=$R/jobs/$name X=$J/x-$N
claimed=
if ! [ -d "$X" ]; then
  [ -s "$J/rc" ] && [ -e "$J/told" ] && no NoSuchSession over
  [ -n "$INPUT" ] && ! [ -s "$J/rc" ] && ! [ -p "$J/c" ] && no StdinClosed closed
  if mkdir "$X" 2>/dev/null; then
    claimed=1
    cat >"$X/data"
    begin='0 0'
    [ -s "$J/cursor" ] && read -r begin <"$J/cursor"
    now
    echo "$begin $now" >"$X/start"
    if [ -n "$INPUT" ] && [ -p "$J/c" ]; then
      late=$((now + 1000))
      until [ -e "$J/fed" ] || [ -s "$J/rc" ] || [ $now -ge $late ]; do nap 0.01; now; done
      echo "x-$N/data" 1<>"$J/c"
    fi
  fi
fi
[ -n "$claimed" ] || cat >/dev/null
tries=0
while ! [ -s "$X/start" ] && [ $tries -lt 100 ]; do nap 0.02; tries=$((tries + 1)); done
[ -s "$X/start" ] && read -r begin begin_err DUE <"$X/start" || no NoSuchSession gone
echo "$begin $begin_err $name"
[ -n "$FROM" ] || FROM=$begin FROM_ERR=$begin_err
"""
"""Give input to a running command, once for each operation; the first line of the answer says where
its output begins, and which job it is."""

KILL = r"""
J=$R/jobs/$N
[ -d "$J" ] || exit 0
leader=
if ! [ -s "$J/rc" ]; then
  [ -s "$J/leader" ] && read -r leader <"$J/leader"
  claim_end "$J" cancelled
fi
now; begun=$now
while sweep "$MARK" "$leader" && ! is_over "$J"; do
  now
  [ $now -lt $((begun + 500)) ] || exit 0
  nap 0.01
done
is_over "$J" || echo left
"""

KILL_ALL = r"""
for file in "$R"/live/*; do
  [ -e "$file" ] || continue
  J=$R/jobs/${file##*/}
  [ -s "$J/rc" ] || claim_end "$J" cancelled
done
sweep "$MARK" '' || { echo left; exit; }
now; late=$((now + 500))
for file in "$R"/live/*; do
  [ -e "$file" ] || continue
  until is_over "$R/jobs/${file##*/}" || [ $now -ge $late ]; do nap 0.01; now; done
done
"""

COUNT = r"""
count=0
for file in "$R"/live/*; do
  [ -e "$file" ] || continue
  is_over "$R/jobs/${file##*/}" || count=$((count + 1))
done
echo $count
"""

FIRST_REQUEST = r"""
file=$R/asked/$N
if ! [ -s "$file" ]; then
  cat >"$file.$$" && { ln "$file.$$" "$file" 2>/dev/null; rm -f "$file.$$"; }
else
  cat >/dev/null
fi
cat "$file"
"""

SET_CURSOR = r"""
echo "$FROM $FROM_ERR" >"$R/jobs/$N/cursor.$$" && mv "$R/jobs/$N/cursor.$$" "$R/jobs/$N/cursor"
"""

FORGET = r"""
J=$R/jobs/$N
[ -s "$J/session" ] && read -r session <"$J/session" && rm -f "$R/sessions/$session"
rm -rf "$J" "$R/live/$N"
"""

PRUNE = r"""
cd "$R/jobs" || exit 1
ls -t | tail -n +1001 | while read -r N; do
  is_over "./$N" || continue
  [ -s "$N/session" ] && read -r session <"$N/session" && rm -f "$R/sessions/$session"
  rm -rf "./$N" "$R/live/$N"
done
used=$(du -sk . | cut -f1)
[ "$used" -le $MOST_KB ] || ls -tr | while read -r N; do
  is_over "./$N" || continue
  rm -f "./$N"/out.* "./$N"/err.*
  [ "$(du -sk . | cut -f1)" -gt $MOST_KB ] || break
done
cd "$R/asked" && ls -t | tail -n +10001 | while read -r N; do rm -f "./$N"; done
"""
"""Forget the oldest operations, and the output of old commands beyond a size."""
