#!/usr/bin/env bash
# A database with synchronous=FULL on ext4 over a volume; the daemon is killed at random moments. Every commit that returned
# must be there, and the database without fault, round after round. Members lie behind a volatile cache in the daemon's
# memory, so that a kill loses what a power cut would.
#
#   sqlite_kill_test.sh PATH-TO-EPLOG [--ignore-flush] [--canary]
#
# ROUNDS (default 4) and SEED come from the environment; options as in ext4_kill_test.sh.
set -euo pipefail
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "$0")/lib.sh" "$1"
shift
ROUNDS=${ROUNDS:-4}
OPTIONS=(--test-volatile-cache)
kill_options "--ignore-flush" "$@"
need_fuse
need_loop
need_programs python3 mkfs.ext4 e2fsck mount umount
python3 -c 'import sqlite3' 2>/dev/null || skip "there is no sqlite3 in python3"
HERE=$(cd "$(dirname "$0")" && pwd)
make_work
say "seed $SEED: SEED=$SEED ROUNDS=$ROUNDS $0 ... chooses the same moments again"
RECORD=$WORK/record
: >"$RECORD"

create_array --level 6 --ssds 6 --logs 2 --device-size 96M --log-size 64M
"$EPLOG" volume create "$ARRAY" disk 256M
start_daemon || die "mount: $(cat "$WORK/mount.err")"
attach_loop disk
mkfs.ext4 -q -b 4096 "$LOOP" || die "mkfs"
shut_down
boot disk "${OPTIONS[@]}"
COMMITS=0
for ((round = 1; round <= ROUNDS; ++round)); do
  journal=$([ $((round % 2)) -eq 1 ] && echo WAL || echo TRUNCATE)
  put_load python3 "$HERE/sqlite_writer.py" write "$FS/database" "$RECORD" "$SEED.$round" "$journal" "$MNT"
  wait_for_work "$RECORD" "$(wc -l <"$RECORD")"
  random_sleep 500 3000
  crash
  check_array # recovers in memory and changes nothing
  boot disk "${OPTIONS[@]}"
  status=0
  COMMITS=$(python3 "$HERE/sqlite_writer.py" check "$FS/database" "$RECORD" 2>"$WORK/database.err") || status=$?
  [ $status -eq 0 ] || lost "$(cat "$WORK/database.err")"
  say "round $round, $journal: $COMMITS commits verified"
done
shut_down
check_array
say "passed: $ROUNDS rounds, $COMMITS commits, $(elapsed) s"
