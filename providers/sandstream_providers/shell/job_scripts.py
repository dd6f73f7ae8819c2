"""The life of a command, in the shell: claimed, started once, watched, ended.

The directory of a job has these files: ``run`` (the keeper below) and ``go`` (the command);
``session``; ``begun`` (the process that makes it decides whether the command starts);
``pid`` (the keeper's name and its start); ``out.*`` and ``err.*`` (output, named by the offset of
the first byte);
``killed`` (why it is ended); ``rc`` (exit code, why, length of each stream if a background process
holds it); ``lost`` (it was never started); ``told`` (a caller was told of the end); ``cursor``
(what answers have given so far).
"""

from __future__ import annotations

KEEPER = r"""
set -C
{ echo >"$J/begun"; } 2>/dev/null || exit
set +C
me; now
echo "$me $now" >"$J/pid"
[ -s "$J/killed" ] && { echo "137 cancelled - -" >"$J/rc"; rm -f "$R/live/$N"; exit; }

pump() {
  exec <"$J/$1"
  at=0 most=$HALF last= older=
  while :; do
    file="$J/$2.$at" size=0
    while [ $size -lt $most ]; do
      count=$(( (most - size) / 65536 + 1 ))
      dd bs=65536 count=$count >>"$file" 2>"$J/$2-dd" || exec cat >/dev/null
      while IFS='+ ' read -r full part rest; do
        case $rest in 'records in'*) break ;; esac
      done <"$J/$2-dd"
      [ -n "$full" ] || exec cat >/dev/null
      [ $((full + part)) -lt $count ] && exit
      size=$(stat -c %s "$file")
    done
    [ -s "$J/rc" ] && exec cat >/dev/null
    [ -n "$older" ] && rm -f "$older"
    [ $at -gt 0 ] && older=$last last=$file
    at=$((at + size)) most=$SEGMENT
  done
}
extent() {
  most=0
  for file in "$J/$1".*; do
    end=$(( ${file##*.} + $(stat -c %s "$file") ))
    [ $end -gt $most ] && most=$end
  done
  echo $most
}
over() { ! kill -0 $1 2>/dev/null; }
idle() {
  cat /proc/[0-9]*/stat 2>/dev/null | awk -v out=$out -v err=$err '
    {
      rest = $0; sub(/^.*\) /, "", rest); split(rest, field, " ")
      if ($1 == out || $1 == err) busy[$1] = field[1] != "Z" && $2 != "(cat)"
      if (field[1] == "S") sleeps[field[2]] = 1
    }
    END { exit (busy[out] && !sleeps[out]) || (busy[err] && !sleeps[err]) }'
}
tick() { now; { [ $now -ge $late ] || idle; } && held=1; }
end() {
  leader=
  [ -s "$J/leader" ] && read -r leader <"$J/leader"
  sweep "$MARK" "$leader"
}

pump o out & out=$!
pump e err & err=$!
feeder= timer=
if [ -p "$J/c" ]; then
  (
    exec 7<>"$J/c" 8<>"$J/i"
    echo >"$J/fed"
    [ -s "$J/in" ] && cat "$J/in" 7<&- 8<&- >"$J/i"
    while read -r name <&7; do cat "$J/$name" 7<&- 8<&- >"$J/i"; done
  ) &
  feeder=$! input=$J/i
fi
if [ -n "$TIMEOUT" ]; then
  (
    trap 'kill $! 2>/dev/null; exit' TERM
    sleep "$TIMEOUT" &
    wait $!
    trap - TERM
    [ -s "$J/rc" ] && exit
    claim_end "$J" timeout
    end
  ) &
  timer=$!
fi
export "$MARK"
if [ -n "$TTY" ]; then
  export SANDSTREAM_TTY="$J" SHELL=/bin/sh
  (exec setsid script -qfc 'sh "$SANDSTREAM_TTY/tty"' /dev/null <"$input" >"$J/o" 2>"$J/e")
else
  (exec setsid sh "$J/go" <"$input" >"$J/o" 2>"$J/e")
fi
code=$?
[ -s "$J/code" ] && read -r code <"$J/code"
unset "${MARK%%=*}"
why=-
if [ -s "$J/killed" ]; then
  end
  read -r why <"$J/killed"
fi
[ -n "$timer$feeder" ] && kill $timer $feeder 2>/dev/null
now; late=$((now + 3000)) held=
trap tick USR1
( while nap 0.1; do kill -USR1 $$ || exit; done ) 2>/dev/null & linger=$!
until [ -n "$held" ] || { over $out && over $err; }; do wait $out; wait $err; done
kill $linger 2>/dev/null
out_end=- err_end=-
[ -n "$held" ] && out_end=$(extent out) err_end=$(extent err)
echo "$code $why $out_end $err_end" >"$J/rc"
rm -f "$R/live/$N" "$J/o" "$J/e" "$J/i" "$J/c"
"""
"""Started as a daemon. Notes itself, then the command's output and its end.

Output goes through pumps that keep the beginning and the newest segments of a stream. A process
that runs on in the background after the end is heard but not kept: if it holds a stream, the end of
the output is where the pump had read all there was (``idle``), since its reader sleeps only at an
empty pipe. On a busy machine that takes a while; one that never stops to talk is cut off. ``rc`` is
one small write, so it is empty or whole; a keeper that died before it leaves a lost command.
"""

TERMINAL = r"""
trap : INT QUIT
stty sane rows 24 cols 80 2>/dev/null
sh "$SANDSTREAM_TTY/go"
echo $? >"$SANDSTREAM_TTY/code"
"""
"""What ``script`` runs in a new terminal. Not every ``script`` passes on the exit code."""

LAUNCH = r"""
look_for_program() {
  case $PROGRAM in
    */*)
      [ -e "$PROGRAM" ] || no CannotExecute missing
      [ -f "$PROGRAM" ] && [ -x "$PROGRAM" ] || no CannotExecute forbidden
      return ;;
  esac
  why=missing
  IFS=:
  for folder in $SEARCH; do
    [ -f "${folder:-.}/$PROGRAM" ] || continue
    if [ -x "${folder:-.}/$PROGRAM" ]; then unset IFS; return; fi
    why=forbidden
  done
  no CannotExecute $why
}
count_live() {
  set -- "$R"/live/*
  [ $# -lt 64 ] && return
  count=0
  for file; do is_over "$R/jobs/${file##*/}" && rm -f "$file" || count=$((count + 1)); done
  [ $count -lt 64 ] || no LimitReached live
}
start() {
  set -- "$J/o" "$J/e"
  [ -z "$PIPES" ] || set -- "$@" "$J/i" "$J/c"
  tar -xomf - -C "$J" && mkfifo "$@" || { rm -rf "$J"; exit 1; }
  for session in $SESSIONS -; do
    ln -s "$N" "$R/sessions/$session" 2>/dev/null && break
  done
  [ $session != - ] || { rm -rf "$J"; no LimitReached sessions; }
  echo $session >"$J/session"
  echo >"$R/live/$N"
  setsid setsid sh "$J/run" </dev/null >/dev/null 2>&1
}
J=$R/jobs/$N
if [ -d "$J" ]; then
  cat >/dev/null
else
  cd -- "$CWD" 2>/dev/null || no CannotExecute cwd
  look_for_program
  count_live
  if mkdir "$J"; then start; else [ -d "$J" ] || exit 1; fi
fi
"""
"""Claim the operation and start its keeper, unless that was done before. ``setsid`` that leads a
group forks, so two of them make a daemon; after ``&`` it would ignore interrupts for ever."""
