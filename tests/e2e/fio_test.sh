#!/usr/bin/env bash
# fio writes through the mount and verifies what it reads by checksum: direct and buffered, small and mixed sizes, two
# volumes at once; everything is read again after unmounting and mounting. The array must then check clean.
#
#   fio_test.sh PATH-TO-EPLOG
set -euo pipefail
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "$0")/lib.sh" "$1"
need_fuse
need_programs fio python3
make_work
SIZE=${SIZE:-96M}

fio_run() {  # NAME OPTION...
  local name=$1
  shift
  fio --name="$name" --randseed="$SEED" --verify=crc32c --verify_fatal=1 --output="$WORK/$name.out" "$@" ||
    lost "fio $name: $(tail -n 20 "$WORK/$name.out")"
}
direct=(--direct=1 --ioengine=io_uring --rw=randwrite --iodepth=16 --size="$SIZE")
small=(--filename="$MNT/one" "${direct[@]}" --bs=4k)
mixed=(--filename="$MNT/one" "${direct[@]}" --bsrange=4k-256k)
buffered=(--filename="$MNT/two" --ioengine=io_uring --rw=randwrite --iodepth=16 --size="$SIZE" --bsrange=1k-64k --fsync=32)

create_array --level 6 --ssds 6 --logs 2 --device-size 96M --log-size 64M
"$EPLOG" volume create "$ARRAY" one 128M
"$EPLOG" volume create "$ARRAY" two 128M
start_daemon || die "mount: $(cat "$WORK/mount.err")"

say "4 KiB random writes, direct"
fio_run small "${small[@]}"
say "4 to 256 KiB, direct, over the same range"
fio_run mixed "${mixed[@]}"
say "two volumes at once"
fio_run first --filename="$MNT/one" "${direct[@]}" --bs=4k --loops=2 &
FIRST=$!
LOAD+=($FIRST)
fio_run second --filename="$MNT/two" "${direct[@]}" --bsrange=4k-64k
wait $FIRST || exit $?
LOAD=()
say "buffered, with fsync"
fio_run buffered "${buffered[@]}"

say "again after unmounting and mounting"
stop_daemon
check_array
start_daemon || die "mount: $(cat "$WORK/mount.err")"
fio_run second_pass_one --filename="$MNT/one" "${direct[@]}" --bs=4k --verify_only
fio_run second_pass_two "${buffered[@]}" --verify_only
stop_daemon
check_array
say "passed in $(elapsed) s"
