#!/usr/bin/env bash
# PostgreSQL on ext4 on a loop device over a volume: its blocks carry checksums of their own, and its control file ends in
# one. While clients commit, members are failed, their files deleted and made anew in the same place, and rebuilt; the daemon
# is killed at a random moment of that. Every commit must be there, round after round.
#
#   postgres_kill_test.sh PATH-TO-EPLOG [--volatile-cache] [--ignore-flush] [--canary]
#
# Options as in ext4_kill_test.sh. ROUNDS (default 4), CLIENTS (2) and SEED come from the environment;
# KEEP=1 keeps what a failed run left.
set -euo pipefail
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "$0")/lib.sh" "$1"
shift
ROUNDS=${ROUNDS:-4}
CLIENTS=${CLIENTS:-2}
OPTIONS=()
kill_options "--volatile-cache --ignore-flush" "$@"
need_fuse
need_loop
need_programs python3 psql runuser mkfs.ext4 e2fsck mount umount
POSTGRES=$(find /usr/lib/postgresql -path '*/bin/postgres' 2>/dev/null | sort -V | tail -n 1)
[ -n "$POSTGRES" ] || skip "there is no PostgreSQL server in /usr/lib/postgresql"
id postgres >/dev/null 2>&1 || skip "there is no user postgres for the server"
HERE=$(cd "$(dirname "$0")" && pwd)
make_work
chmod 711 "$WORK"
SOCKET=$WORK/socket
mkdir "$SOCKET" && chown postgres "$SOCKET"
say "seed $SEED: SEED=$SEED ROUNDS=$ROUNDS $0 ... chooses the same moments again"

# In a directory that the server's user may enter, whoever runs this in whatever other.
as_postgres() { (cd / && exec runuser -u postgres -- "$@"); }

start_server() {
  as_postgres "$POSTGRES" -D "$FS/database" >>"$WORK/server.log" 2>&1 &
  disown $!
  local tries
  for ((tries = 0; tries < 6000; ++tries)); do
    psql -X -q -h "$SOCKET" -U postgres -c '' postgres 2>/dev/null && return 0
    sleep 0.1
  done
  lost "the server does not start: $(tail -n 30 "$WORK/server.log")"
}

servers() {  # by where they work
  local process
  for process in /proc/[0-9]*; do
    case $(readlink "$process/cwd" 2>/dev/null) in "$FS"/database*) echo "${process#/proc/}" ;; esac
  done
}

kill_server() {
  local tries process
  for ((tries = 0; tries < 3000; ++tries)); do
    process=$(servers)
    [ -n "$process" ] || return 0
    # shellcheck disable=SC2086
    kill -9 $process 2>/dev/null || true
    sleep 0.1
  done
  die "the server does not end"
}

stop_server() {
  as_postgres "$(dirname "$POSTGRES")/pg_ctl" -D "$FS/database" -m fast -w -t 600 stop >/dev/null || die "the server does not stop"
}

status_value() {  # EXPRESSION
  { "$EPLOG" status "$ARRAY" --json 2>/dev/null || [ $? -eq 3 ]; } |
    python3 -c "import json, sys; d = json.load(sys.stdin); print($1)"
}
state_of() { status_value "next(x['state'] for x in d['devices'] if x['name'] == '$1')"; }  # MEMBER
whole() { [ "$(status_value "d['array']['state'] in ('clean', 'active')")" = True ]; }
wait_until_whole() {
  local tries
  for ((tries = 0; tries < 6000; ++tries)); do
    ! whole || return 0
    sleep 0.1
  done
  die "not rebuilt: $("$EPLOG" status "$ARRAY")"
}

# A disk that dies and another one in its slot, under its name.
swap() {  # MEMBER
  "$EPLOG" fail "$ARRAY" "$1" >"$WORK/swap.out" 2>&1 || die "fail $1: $(cat "$WORK/swap.out")"
  random_sleep 1 1000
  rm "$ARRAY/$1"
  "$EPLOG" replace "$ARRAY" "$1" "$ARRAY/$1" >"$WORK/swap.out" 2>&1 || die "replace $1: $(cat "$WORK/swap.out")"
}

create_array --level 5 --ssds 3 --logs 1 --device-size 256M --log-size 96M
"$EPLOG" volume create "$ARRAY" disk 384M
start_daemon || die "mount: $(cat "$WORK/mount.err")"
attach_loop disk
mkfs.ext4 -q -b 4096 "$LOOP" || die "mkfs"
mount "$LOOP" "$FS"
mkdir "$FS/database" && chown postgres "$FS/database"
as_postgres "$(dirname "$POSTGRES")/initdb" -D "$FS/database" -A trust --no-sync --wal-segsize=4 >"$WORK/initdb.out" 2>&1 ||
  die "initdb: $(cat "$WORK/initdb.out")"
cat >>"$FS/database/postgresql.conf" <<CONF
listen_addresses = ''
unix_socket_directories = '$SOCKET'
shared_buffers = 8MB
max_wal_size = 32MB
min_wal_size = 8MB
checkpoint_timeout = 30s
CONF
shut_down
check_array
boot disk "${OPTIONS[@]}"
for ((client = 0; client < CLIENTS; ++client)); do
  : >"$WORK/record.$client"
done

verify() {
  local status=0
  ROWS=$(python3 "$HERE/postgres_client.py" check "$SOCKET" "$WORK"/record.* 2>"$WORK/client.err") || status=$?
  [ $status -eq 0 ] || lost "$(cat "$WORK/client.err")"
}

for ((round = 1; round <= ROUNDS; ++round)); do
  start_server
  [ "$round" -eq 1 ] || verify
  before=$(wc -l <"$WORK/record.0")
  for ((client = 0; client < CLIENTS; ++client)); do
    put_load python3 "$HERE/postgres_client.py" write "$SOCKET" "$WORK/record.$client" "$client" "$SEED.$round.$client" "$MNT"
  done
  wait_for_work "$WORK/record.0" "$before"
  random_sleep 500 3000
  what=kill
  member=ssd0
  # The first round always: a canary that swaps would only test the swap.
  if [ ${#OPTIONS[@]} -eq 0 ]; then
    members=(ssd0 ssd1 ssd2 log0)
    member=${members[RANDOM % 4]}
    case $((RANDOM % 4)) in
      0) ;;
      1)
        what="$member failed, kill"
        "$EPLOG" fail "$ARRAY" "$member" >"$WORK/swap.out" 2>&1 || die "fail $member: $(cat "$WORK/swap.out")"
        random_sleep 200 1500
        ;;
      2)
        what="$member swapped, kill while it is rebuilt"
        swap "$member"
        random_sleep 1 500
        ;;
      3)
        what="$member swapped and rebuilt, kill"
        swap "$member"
        wait_until_whole
        random_sleep 200 1500
        ;;
    esac
  fi
  kill_daemon
  cut_connection
  kill_server
  put_down
  # Recovers in memory and changes nothing; what is not rebuilt says so.
  status=0
  "$EPLOG" check "$ARRAY" >"$WORK/check.out" 2>&1 || status=$?
  [ $status -eq 0 ] || { [ $status -eq 3 ] && [ "$what" != kill ]; } ||
    lost "eplog check after '$what', exit status $status: $(head -c 2000 "$WORK/check.out")"
  boot disk "${OPTIONS[@]}"
  case $(state_of "$member") in
    missing | failed)
      rm -f "$ARRAY/$member"
      "$EPLOG" replace "$ARRAY" "$member" "$ARRAY/$member" >"$WORK/swap.out" 2>&1 ||
        die "replace $member after '$what': $(cat "$WORK/swap.out")"
      ;;
  esac
  wait_until_whole
  start_server
  verify
  stop_server
  say "round $round: $what: $ROWS rows verified"
done
start_server
verify
stop_server
shut_down
check_array
say "passed: $ROUNDS rounds, $ROWS rows, $(elapsed) s"
