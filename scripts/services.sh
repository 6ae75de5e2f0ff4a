#!/usr/bin/env bash
# Private PostgreSQL and RabbitMQ servers for tests, found where Debian installs them. They listen on
# 127.0.0.1 only, keep to their durable settings, and have nothing to do with a server of the system.
#
#   scripts/services.sh start [SERVICE]     start missing servers, wait for them, print their variables
#   scripts/services.sh env                 print them again: eval "$(scripts/services.sh env)"
#   scripts/services.sh url SERVICE         print one URL
#   scripts/services.sh status              list running servers
#   scripts/services.sh kill SERVICE        kill -9 all processes of one server
#   scripts/services.sh restart SERVICE     end it properly if it runs, start it on the same data
#   scripts/services.sh stop [SERVICE]      stop servers of this script; data stays
#   scripts/services.sh remove              stop, and remove the folder
#
# SERVICE is postgres or rabbitmq. If TREADLE_TEST_POSTGRES_URL or TREADLE_TEST_AMQP_URL is set,
# that server is used and none of this kind is started.
#
# Options before the command make servers of one test, apart from the others:
#   --folder DIR    keep everything in DIR, whatever the two variables say
#   --owner PID     end and remove the servers once process PID is gone
#
# Ports are the next free ones at the first start and stay; TREADLE_SERVICES_POSTGRES_PORT and
# TREADLE_SERVICES_AMQP_PORT choose others. As root the servers run as postgres and rabbitmq.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Below the range from which Linux takes the ports of outgoing connections, so that none of those
# sits on a server's port while it is down.
readonly POSTGRES_PORT=23432
readonly AMQP_PORT=23672
readonly PRIVATE_PORT=24000
readonly PRIVATE_SLOTS=2000
# How long a server may take to start and to end.
readonly START_S=90
readonly STOP_S=30

FOLDER=""
OWNER=""
PRIVATE=""

say() { printf 'services: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

# ---- who runs what, and where

user_of() { if [[ "$1" == postgres ]]; then echo postgres; else echo rabbitmq; fi; }

# Runs a command as the server's user; as the caller where the caller is not root.
as_user() {
  local user="$1"
  shift
  if ((EUID == 0)); then
    setpriv --reuid="$user" --regid="$user" --init-groups -- "$@"
  else
    "$@"
  fi
}

can_enter() {
  local folder="$1" user
  for user in postgres rabbitmq; do
    id "$user" >/dev/null 2>&1 || continue
    as_user "$user" test -x "$folder" || return 1
  done
}

choose_folder() {
  if [[ -n "$FOLDER" ]]; then
    [[ "$FOLDER" == /* ]] || FOLDER="$PWD/$FOLDER"
    PRIVATE=yes
  elif ((EUID != 0)) || can_enter "$PWD"; then
    FOLDER="$PWD/.treadle/services"
  else
    # The servers' users can't enter the checkout.
    FOLDER="/var/tmp/treadle-services-$(printf '%s' "$PWD" | cksum | cut -d' ' -f1)"
  fi
}

make_folder() {
  mkdir -p "$FOLDER"
  [[ -O "$FOLDER" ]] || fail "$FOLDER belongs to somebody else; remove it or give another with --folder"
  chmod 755 "$FOLDER"
  ((EUID != 0)) || can_enter "$FOLDER" ||
    fail "the users postgres and rabbitmq can't enter $FOLDER; give another with --folder"
}

own_folder() {
  mkdir -p "$2"
  chmod 700 "$2"
  ((EUID != 0)) || chown -R "$1:" "$2"
}

postgres_bin() {
  local initdb
  # The newest version first.
  initdb="$(compgen -G '/usr/lib/postgresql/*/bin/initdb' | sort -Vr | head -n1)" || true
  [[ -n "$initdb" ]] || initdb="$(command -v initdb)" ||
    fail "PostgreSQL is missing; run scripts/setup.sh test, or set TREADLE_TEST_POSTGRES_URL"
  dirname "$initdb"
}

rabbitmq_server() {
  local path
  # Debian's /usr/sbin/rabbitmq-server is for the system's own node.
  for path in /usr/lib/rabbitmq/bin/rabbitmq-server "$(command -v rabbitmq-server || true)"; do
    [[ -x "$path" ]] && echo "$path" && return 0
  done
  fail "RabbitMQ is missing; run scripts/setup.sh test, or set TREADLE_TEST_AMQP_URL"
}

# ---- ports

is_used() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

are_free() {
  local port
  for port in "$@"; do
    is_used "$port" && return 1
  done
  return 0
}

# Writes the ports of this folder down at its first start: postgres, amqp, distribution, epmd.
choose_ports() {
  [[ -s "$FOLDER/ports" ]] && return 0
  local postgres="${TREADLE_SERVICES_POSTGRES_PORT:-}" amqp="${TREADLE_SERVICES_AMQP_PORT:-}"
  local first="$POSTGRES_PORT" first_amqp="$AMQP_PORT" slot
  if [[ -n "$PRIVATE" ]]; then
    slot=$(($(printf '%s' "$FOLDER" | cksum | cut -d' ' -f1) % PRIVATE_SLOTS))
    first=$((PRIVATE_PORT + 4 * slot))
    first_amqp=$((first + 1))
  fi
  until [[ -n "$postgres" ]]; do
    are_free "$first" && postgres="$first"
    first=$((first + 4))
  done
  until [[ -n "$amqp" ]]; do
    are_free "$first_amqp" $((first_amqp + 1)) $((first_amqp + 2)) && amqp="$first_amqp"
    first_amqp=$((first_amqp + 4))
  done
  printf '%s %s %s %s\n' "$postgres" "$amqp" $((amqp + 1)) $((amqp + 2)) >"$FOLDER/ports.new"
  mv "$FOLDER/ports.new" "$FOLDER/ports"
}

port_of() {
  [[ -s "$FOLDER/ports" ]] || return 1
  local postgres amqp distribution epmd
  read -r postgres amqp distribution epmd <"$FOLDER/ports"
  case "$1" in
    postgres) echo "$postgres" ;;
    rabbitmq) echo "$amqp" ;;
    distribution) echo "$distribution" ;;
    epmd) echo "$epmd" ;;
  esac
}

given_url() {
  [[ -z "$PRIVATE" ]] || return 1
  local url
  if [[ "$1" == postgres ]]; then url="${TREADLE_TEST_POSTGRES_URL:-}"; else url="${TREADLE_TEST_AMQP_URL:-}"; fi
  [[ -n "$url" ]] && echo "$url"
}

url_of() {
  given_url "$1" && return 0
  local port
  port="$(port_of "$1")" || fail "$1 was never started; run scripts/services.sh start"
  case "$1" in
    postgres) echo "postgres://treadle@127.0.0.1:$port/treadle" ;;
    rabbitmq) echo "amqp://guest:guest@127.0.0.1:$port/%2f" ;;
  esac
}

# ---- processes

# When a process began: in ticks since the machine did, which no change of the clock moves, or else
# as ps says it.
born() {
  if [[ -r "/proc/$1/stat" ]]; then
    # The name of the process is in parentheses and may have spaces in it.
    sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20
  else
    ps -o lstart= -p "$1" 2>/dev/null
  fi
}

# The server's process id, if that process has the server's start time.
pid_of() {
  local pid since
  [[ -s "$FOLDER/$1.pid" ]] || return 1
  read -r pid since <"$FOLDER/$1.pid"
  [[ -n "$since" && "$(born "$pid")" == "$since" ]] && ! is_gone "$pid" && echo "$pid"
}

# A process and all below it, one id per line.
tree_of() {
  local child
  echo "$1"
  for child in $(ps -o pid= --ppid "$1" 2>/dev/null); do
    tree_of "$child"
  done
}

is_gone() {
  local state
  # A zombie counts as gone.
  state="$(ps -o state= -p "$1" 2>/dev/null)" || return 0
  [[ "$state" == Z* ]]
}

await_gone() {
  local deadline=$((SECONDS + STOP_S)) pid
  for pid in "$@"; do
    until is_gone "$pid"; do
      ((SECONDS < deadline)) || return 1
      sleep 0.05
    done
  done
}

# Whether this very process is ready, and not another one at its port.
is_ready() {
  local pid lines
  pid="$(pid_of "$1")" || return 1
  if [[ "$1" == postgres ]]; then
    mapfile -t lines < <(cat "$FOLDER/postgres/data/postmaster.pid" 2>/dev/null)
    [[ "${lines[0]:-}" == "$pid" && "${lines[7]:-}" == ready* ]]
  else
    [[ "$(cat "$FOLDER/rabbitmq/server.pid" 2>/dev/null)" == "$pid" ]] &&
      amqp_answers "$(port_of rabbitmq)" 2>/dev/null
  fi
}

# Whether a server greets as AMQP 0-9-1 demands: its first frame is of type 1.
amqp_answers() (
  exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
  printf 'AMQP\x00\x00\x09\x01' >&3
  IFS= read -r -t 2 -N 1 -u 3 first && [[ "$first" == $'\x01' ]]
)

await_ready() {
  local deadline=$((SECONDS + START_S))
  until is_ready "$1"; do
    pid_of "$1" >/dev/null || { tail -n 20 "$FOLDER/$1.log" >&2; fail "$1 ended while it started; see $FOLDER/$1.log"; }
    ((SECONDS < deadline)) || { tail -n 20 "$FOLDER/$1.log" >&2; fail "$1 is not ready after $START_S s; see $FOLDER/$1.log"; }
    sleep 0.1
  done
}

# Starts a server of its own session, without this script's files, and notes its process id.
launch() {
  local service="$1"
  shift
  (
    cd "$FOLDER/$service"
    exec setsid "$@" </dev/null >>"$FOLDER/$service.log" 2>&1 9>&-
  ) &
  # Read at once: the process keeps its id and its birth when it becomes the server.
  printf '%s %s\n' $! "$(born $!)" >"$FOLDER/$service.pid"
  disown
}

# ---- PostgreSQL

init_postgres() {
  local bin="$1" data="$FOLDER/postgres/data"
  [[ -f "$FOLDER/postgres/made" ]] && return 0
  rm -rf "$FOLDER/postgres"
  own_folder postgres "$FOLDER/postgres"
  (
    cd "$FOLDER/postgres"
    as_user postgres "$bin/initdb" -D "$data" -U treadle -A trust -E UTF8 --locale=C.UTF-8 --no-sync \
      --no-instructions >>"$FOLDER/postgres.log" 2>&1
  ) || { tail -n 20 "$FOLDER/postgres.log" >&2; fail "initdb failed; see $FOLDER/postgres.log"; }
  cat >>"$data/postgresql.conf" <<END
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 300
shared_buffers = 128MB
max_wal_size = 2GB
# Committed data must survive kills: the defaults, made explicit.
fsync = on
synchronous_commit = on
full_page_writes = on
timezone = 'UTC'
log_min_messages = warning
END
}

run_postgres() {
  local bin
  bin="$(postgres_bin)"
  init_postgres "$bin"
  # In a container whose first process is slow to reap, one that was killed looks alive to the next.
  local lock="$FOLDER/postgres/data/postmaster.pid"
  [[ ! -s "$lock" ]] || ! is_gone "$(head -n1 "$lock")" || rm -f "$lock"
  if ((EUID == 0)); then
    launch postgres setpriv --reuid=postgres --regid=postgres --init-groups -- \
      "$bin/postgres" -D "$FOLDER/postgres/data" -p "$(port_of postgres)"
  else
    launch postgres "$bin/postgres" -D "$FOLDER/postgres/data" -p "$(port_of postgres)"
  fi
  await_ready postgres
  if [[ ! -f "$FOLDER/postgres/made" ]]; then
    "$bin/createdb" -h 127.0.0.1 -p "$(port_of postgres)" -U treadle treadle
    touch "$FOLDER/postgres/made"
  fi
}

# ---- RabbitMQ

init_rabbitmq() {
  [[ -f "$FOLDER/rabbitmq/made" ]] && return 0
  rm -rf "$FOLDER/rabbitmq"
  mkdir -p "$FOLDER/rabbitmq"
  echo '[].' >"$FOLDER/rabbitmq/enabled_plugins"
  : >"$FOLDER/rabbitmq/env.conf"
  cat >"$FOLDER/rabbitmq/rabbitmq.conf" <<END
listeners.tcp.default = 127.0.0.1:$(port_of rabbitmq)
disk_free_limit.absolute = 64MB
log.file.level = warning
END
  own_folder rabbitmq "$FOLDER/rabbitmq"
  touch "$FOLDER/rabbitmq/made"
}

run_rabbitmq() {
  local server home="$FOLDER/rabbitmq" amqp prefix=()
  server="$(rabbitmq_server)"
  init_rabbitmq
  amqp="$(port_of rabbitmq)"
  ((EUID != 0)) || prefix=(setpriv --reuid=rabbitmq --regid=rabbitmq --init-groups --)
  # Its own epmd, which ends with it. RUNNING_UNDER_SYSTEMD has the script become the server, so
  # that there is one process id.
  launch rabbitmq "${prefix[@]}" env -u NOTIFY_SOCKET HOME="$home" RUNNING_UNDER_SYSTEMD=true \
    ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT="$(port_of epmd)" \
    RABBITMQ_NODENAME="treadle-$amqp@localhost" \
    RABBITMQ_NODE_PORT="$amqp" RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 \
    RABBITMQ_DIST_PORT="$(port_of distribution)" \
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}' \
    RABBITMQ_MNESIA_BASE="$home/data" RABBITMQ_LOG_BASE="$home/log" \
    RABBITMQ_CONFIG_FILE="$home/rabbitmq.conf" RABBITMQ_CONF_ENV_FILE="$home/env.conf" \
    RABBITMQ_ENABLED_PLUGINS_FILE="$home/enabled_plugins" \
    RABBITMQ_PID_FILE="$home/server.pid" RABBITMQ_GENERATED_CONFIG_DIR="$home/config" \
    "$server"
  await_ready rabbitmq
}

end_epmd() {
  # epmd is a daemon of its own and refuses to end while a node is registered.
  ERL_EPMD_PORT="$(port_of epmd)" epmd -kill >/dev/null 2>&1 || true
}

# ---- commands

services() {
  case "${1:-}" in
    "") echo postgres rabbitmq ;;
    postgres | rabbitmq) echo "$1" ;;
    *) fail "'$1' is not known; give postgres or rabbitmq" ;;
  esac
}

one_service() {
  [[ -n "${1:-}" ]] || fail "name the service: postgres or rabbitmq"
  services "$1"
}

start_one() {
  given_url "$1" >/dev/null && return 0
  if ((EUID == 0)); then
    id "$(user_of "$1")" >/dev/null 2>&1 ||
      fail "there is no user $(user_of "$1"), which the server runs as; run scripts/setup.sh test"
  fi
  choose_ports
  if pid_of "$1" >/dev/null; then
    await_ready "$1"
    return 0
  fi
  "run_$1"
  say "$1 runs at $(url_of "$1")"
}

stop_one() {
  local pid pids
  if pid="$(pid_of "$1")"; then
    mapfile -t pids < <(tree_of "$pid")
    # PostgreSQL: SIGINT ends connections and shuts down. The Erlang machine: SIGTERM stops the node.
    if [[ "$1" == postgres ]]; then kill -INT "$pid"; else kill -TERM "$pid"; fi
    await_gone "$pid" || kill_one "$1"
    await_gone "${pids[@]}" || say "some processes of $1 are left: ${pids[*]}"
  fi
  [[ "$1" != rabbitmq || ! -s "$FOLDER/ports" ]] || end_epmd
  rm -f "$FOLDER/$1.pid"
}

kill_one() {
  local pid pids
  given_url "$1" >/dev/null && fail "$1 was given by its URL and is not killed"
  pid="$(pid_of "$1")" || fail "$1 does not run"
  # The backends of PostgreSQL have sessions of their own: all of them at once, the first one first.
  mapfile -t pids < <(tree_of "$pid")
  kill -KILL "${pids[@]}" 2>/dev/null || true
  await_gone "${pids[@]}" || fail "$1 does not die: ${pids[*]}"
  rm -f "$FOLDER/$1.pid"
}

print_env() {
  local service
  for service in $(services "${1:-}"); do
    if [[ "$service" == postgres ]]; then
      printf 'export TREADLE_TEST_POSTGRES_URL=%q\n' "$(url_of postgres)"
    else
      printf 'export TREADLE_TEST_AMQP_URL=%q\n' "$(url_of rabbitmq)"
    fi
  done
}

print_status() {
  local service pid all=0
  for service in postgres rabbitmq; do
    if given_url "$service" >/dev/null; then
      echo "$service given $(url_of "$service")"
    elif pid="$(pid_of "$service")"; then
      echo "$service runs $(url_of "$service") pid $pid"
    else
      echo "$service stopped"
      all=3
    fi
  done
  return "$all"
}

# Stays behind and removes the servers when their owner has gone.
watch_owner() {
  [[ -n "$OWNER" && ! -e "$FOLDER/owner" ]] || return 0
  echo "$OWNER" >"$FOLDER/owner"
  setsid bash -c 'while [[ -e "$2/owner" ]] && kill -0 "$1" 2>/dev/null; do sleep 1; done
    [[ ! -e "$2/owner" ]] || exec "$3" --folder "$2" remove' \
    watch "$OWNER" "$FOLDER" "$PWD/scripts/services.sh" </dev/null >/dev/null 2>&1 9>&- &
  disown
}

remove() {
  [[ -d "$FOLDER" ]] || return 0
  local service
  for service in postgres rabbitmq; do
    stop_one "$service"
  done
  rm -rf "$FOLDER"
}

# One of these scripts at a time works on a folder.
lock() {
  make_folder
  exec 9>"$FOLDER/lock"
  flock -w $((2 * START_S)) 9 || fail "another services.sh has worked on $FOLDER for too long"
}

main() {
  while [[ "${1:-}" == --* ]]; do
    case "$1" in
      --folder) FOLDER="${2:?--folder needs a folder}" ;;
      --owner) OWNER="${2:?--owner needs a process id}" ;;
      *) fail "'$1' is not known; see the head of scripts/services.sh" ;;
    esac
    shift 2
  done
  choose_folder
  local service
  case "${1:-}" in
    start)
      lock
      watch_owner
      for service in $(services "${2:-}"); do start_one "$service"; done
      print_env "${2:-}" | tee "$FOLDER/env"
      ;;
    stop)
      [[ -d "$FOLDER" ]] || return 0
      lock
      for service in $(services "${2:-}"); do stop_one "$service"; done
      ;;
    kill)
      service="$(one_service "${2:-}")"
      lock
      kill_one "$service"
      ;;
    restart)
      service="$(one_service "${2:-}")"
      lock
      stop_one "$service"
      start_one "$service"
      ;;
    remove)
      [[ -d "$FOLDER" ]] || return 0
      lock
      remove
      ;;
    url) service="$(one_service "${2:-}")" && url_of "$service" ;;
    env) print_env "${2:-}" ;;
    status) print_status ;;
    *) fail "give start, env, url, status, kill, restart, stop or remove; see the head of scripts/services.sh" ;;
  esac
}

main "$@"
