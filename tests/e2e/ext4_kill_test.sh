#!/usr/bin/env bash
# ext4 on a loop device over a volume; the daemon is killed at random moments while files are written. Nothing that was
# fsynced may be lost, the file system and the array must be without fault, round after round.
#
#   ext4_kill_test.sh PATH-TO-EPLOG [--volatile-cache] [--ignore-flush] [--canary]
#
# --volatile-cache  members lie behind a cache in the daemon's memory, as behind a disk's that loses power: a kill
#                   loses every member write that was not flushed
# --ignore-flush    and flushes go nowhere: the run must end with exit status 42
# --canary          runs itself with both, and passes if that is how it ended
#
# ROUNDS (default 4), WRITERS (2) and SEED come from the environment; KEEP=1 keeps what a failed run left.
set -euo pipefail
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "$0")/lib.sh" "$1"
shift
ROUNDS=${ROUNDS:-4}
WRITERS=${WRITERS:-2}
OPTIONS=()
kill_options "--volatile-cache --ignore-flush" "$@"
need_fuse
need_loop
need_programs python3 mkfs.ext4 e2fsck mount umount
HERE=$(cd "$(dirname "$0")" && pwd)
make_work
say "seed $SEED: SEED=$SEED ROUNDS=$ROUNDS $0 ... chooses the same moments again"

files() { python3 "$HERE/file_writer.py" "$@"; }

start_load() {  # ROUND
  local writer before
  before=$(wc -l <"$WORK/record.0")
  for ((writer = 0; writer < WRITERS; ++writer)); do
    put_load python3 "$HERE/file_writer.py" write "$FS" "$WORK/record.$writer" "$writer" "$SEED.$1.$writer" "$MNT"
  done
  # Unsynced work beside it.
  put_load python3 "$HERE/file_writer.py" churn "$FS/include/linux" "$FS/copy"
  wait_for_work "$WORK/record.0" $((before + 2))
}

check_files() {
  local status=0
  VERIFIED=$(files check "$FS" "$WORK"/record.* 2>"$WORK/files.err") || status=$?
  [ $status -eq 0 ] || lost "$(cat "$WORK/files.err")"
}

create_array --level 6 --ssds 6 --logs 2 --device-size 160M --log-size 96M
"$EPLOG" volume create "$ARRAY" disk 448M
start_daemon || die "mount: $(cat "$WORK/mount.err")"
attach_loop disk
mkfs.ext4 -q -b 4096 "$LOOP" || die "mkfs"
mount "$LOOP" "$FS"
cp -r /usr/include "$FS/include"
[ -d "$FS/include/linux" ] || die "no headers to copy from /usr/include"
files note "$FS" "$WORK/record.include"
shut_down
check_array
# Only now the options: what is there already stays even if flushes are ignored.
boot disk "${OPTIONS[@]}"
for ((writer = 0; writer < WRITERS; ++writer)); do
  : >"$WORK/record.$writer"
done
TOTAL=0
for ((round = 1; round <= ROUNDS; ++round)); do
  start_load "$round"
  random_sleep 500 4000
  crash
  check_array # before anything has recovered it: recovers in memory and changes nothing
  boot disk "${OPTIONS[@]}"
  check_files
  TOTAL=$((TOTAL + VERIFIED))
  say "round $round: $VERIFIED files verified"
  rm -rf "$FS/copy"
done
shut_down
check_array
say "passed: $ROUNDS rounds, $VERIFIED files at the end, $TOTAL verifications, $(elapsed) s"
