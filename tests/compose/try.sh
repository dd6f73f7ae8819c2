#!/bin/bash
# compose.yaml for real, on the Docker engine of DOCKER_HOST: up, submit, kill, scale, restart, down.
#   tests/compose/try.sh                      images from the registry
#   tests/compose/try.sh --base IMAGE [PYTHON]  no registry: PYTHON, by default python3, has the version
#                                             that IMAGE has; our wheels are made here, and NATS comes
#                                             from a wheel
set -euo pipefail
cd "$(dirname "$0")/../.."

export COMPOSE_PROJECT_NAME=sandstream-try SANDSTREAM_IMAGE=sandstream:try NATS_PORT=${NATS_PORT:-0}
files=(-f compose.yaml)
if [ "${1:-}" = --base ]; then
  export SANDSTREAM_BASE=$2
  files+=(-f tests/compose/no_registry.yaml)
  rm -f deploy/wheels/*.whl
  python3 -m pip --python "${3:-python3}" wheel -qq --wheel-dir deploy/wheels '.[uvloop,nkeys,otlp,prometheus,docker]' pip
fi

compose() { docker compose --env-file deploy/demo.env "${files[@]}" "$@"; }
cli() { compose run --rm -T setup sandstream "$@" 2>/dev/null; }
step() { printf '%4d s  %s\n' "$SECONDS" "$*"; }
fail() {
  echo "FAILED: $*" >&2
  compose ps -a >&2
  compose logs --tail 20 >&2
  exit 1
}
expect() { # expect TEXT COMMAND...: the command's output has the text
  local text=$1 said
  shift
  said=$("$@") || fail "$* ended with $?"
  grep -qF -- "$text" <<<"$said" || fail "$*: expected '$text', got: $said"
  step "   -> $said"
}

cleanup() {
  compose down --volumes --timeout 5 >/dev/null 2>&1 || true
  if [ -n "${SANDSTREAM_BASE:-}" ]; then rm -f deploy/wheels/*.whl; fi
}
trap cleanup EXIT

step "build"
compose build --quiet
step "users of NATS, with new passwords"
mkdir -m 700 -p deploy/auth
docker run --rm -u "$(id -u):$(id -g)" -v "$PWD/deploy/auth:/auth" "$SANDSTREAM_IMAGE" \
  sandstream setup --auth-dir /auth
setup_again() { compose run --rm -T setup sandstream setup 2>&1; }
probe() { compose exec -T worker python - <tests/compose/sandbox_probe.py; }
step "up: nats, two harnesses, a worker, the tracing actor, a scripted model"
compose up --detach --wait --quiet-pull >/dev/null 2>&1 || fail "up"
[ "$(compose ps -q harness | wc -l)" = 2 ] || fail "not two harnesses"

step "the streams are set up once; the server syncs before it acknowledges, and wants a password"
expect "nothing to change" setup_again
syncing() { cli doctor | grep -F " sync "; }
expect "always" syncing
! compose exec -T -e NATS_PASSWORD=wrong worker sandstream runs 2>/dev/null || fail "any password will do"

step "submit a task"
expect "leaves tomorrow" cli submit support "Where is order 17?" --wait --timeout 60
step "the same key is the same run"
expect "closed" cli submit support "Are you open on Sunday?" --key sunday --wait --timeout 60
expect "closed" cli submit support "Are you open on Sunday?" --key sunday --wait --timeout 60

step "the tracing actor has a trace of it"
traced() { compose exec -T tracing sandstream stats --json; }
expect "support" traced

step "six slow tasks, then kill -9 one harness while the model thinks"
compose run --rm -T setup sh -c 'for number in 1 2 3 4 5 6; do
  sandstream submit support "A slow one, number $number" --key "slow-$number" >/dev/null & done; wait'
docker kill --signal KILL "$(compose ps -q harness | head -1)" >/dev/null
for number in 1 2 3 4 5 6; do
  expect "took a while" cli submit support "A slow one, number $number" --key "slow-$number" --wait --timeout 60
done

step "scale to three harnesses"
compose up --detach --wait --no-recreate --scale harness=3 >/dev/null 2>&1 || fail "scale"
[ "$(compose ps -q harness | wc -l)" = 3 ] || fail "not three harnesses"
expect "leaves tomorrow" cli submit support "Where is order 17?" --wait --timeout 60

step "kill -9 nats and start it again: the log is still there, the actors go on"
docker kill --signal KILL "$(compose ps -q nats)" >/dev/null
compose up --detach --wait --no-recreate --scale harness=3 >/dev/null 2>&1 || fail "nats again"
expect "closed" cli submit support "Are you open on Sunday?" --key sunday --wait --timeout 60
expect "leaves tomorrow" cli submit support "Where is order 17?" --wait --timeout 60

step "a memory actor"
compose up --detach --wait --no-recreate memory >/dev/null 2>&1 || fail "memory"
remembering() { cli doctor | grep -F " memory "; }
expect "an actor is live" remembering

if compose exec -T worker sh -c 'command -v bwrap' >/dev/null; then
  step "a sandbox actor, and a command in one of its sandboxes"
  compose --profile sandbox up --detach --wait --no-recreate --scale harness=3 >/dev/null 2>&1 || fail "sandbox"
  expect "isolated, uid 1000" probe
else
  step "sandboxes: not tried, the image has no bubblewrap"
fi

step "the processes are not root and cannot write"
[ "$(compose exec -T harness id -u)" = 10001 ] || fail "root"
! compose exec -T harness touch /app/x 2>/dev/null || fail "the file system is writable"

step "down"
compose down --volumes --timeout 5 >/dev/null 2>&1 || fail "down"
step "all ok"
