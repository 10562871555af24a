#!/usr/bin/env bash
# Members on a file system that does to them what disks do: each loses its own part of what was not flushed when power
# goes, torn and in any order; requests come back short, interrupted, to be repeated, or for want of space. Nothing lies
# between the writers and the volume. What was durable is there, round after round.
#
#   disks_test.sh PATH-TO-EPLOG PATH-TO-FAULT_FS [--ignore-flush | --canary]
#
# ROUNDS (default 6), WRITERS (3) and SEED come from the environment; KEEP=1 keeps what a failed run left.
set -euo pipefail
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "$0")/lib.sh" "$1"
FAULT_FS=$(realpath "$2")
ROUNDS=${ROUNDS:-6}
WRITERS=${WRITERS:-3}
OPTIONS=()
need_fuse
need_programs python3
case ${3:-} in
  --ignore-flush) OPTIONS=(--test-ignore-flush) ;;
  --canary)
    must_lose "$0" "$EPLOG" "$FAULT_FS" --ignore-flush
    exit 0
    ;;
esac
HERE=$(cd "$(dirname "$0")" && pwd)
make_work
say "seed $SEED: SEED=$SEED ROUNDS=$ROUNDS $0 ... chooses the same moments again"
DISKS=$WORK/disks
DISKS_SERVER=
take_away_disks() {
  local status=$?
  set +e
  stop_load
  [ -z "$DAEMON" ] || kill -9 "$DAEMON" 2>/dev/null
  cut_connection
  umount -l "$MNT" 2>/dev/null
  umount -l "$DISKS" 2>/dev/null
  [ -z "$DISKS_SERVER" ] || kill -9 "$DISKS_SERVER" 2>/dev/null
  (exit $status)
  put_away
}
trap take_away_disks EXIT

members() { seq -f "$DISKS/$1%.0f" 0 $(($2 - 1)) | paste -sd ,; }
command_disks() { echo "$*" >"$DISKS/.control" || die "fault_fs refuses: $*"; }
states() {  # of those that are not ok
  { "$EPLOG" status "$ARRAY" --json || true; } | python3 -c "
import json, sys
print(*[d['name'] for d in json.load(sys.stdin)['devices'] if d['state'] != 'ok'])"
}
array_state() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["array"]["state"])' "$WORK/status.json"; }
writer() { python3 "$HERE/volume_writer.py" "$@"; }
start_writers() {  # ROUND
  local i
  for ((i = 0; i < WRITERS; ++i)); do
    put_load python3 "$HERE/volume_writer.py" write "$MNT/disk" "$WORK/record.$i" $i "$WRITERS" "$SEED.$1.$i"
  done
}
lines() { cat "$WORK"/record.* | wc -l; }
verify() {
  local status=0
  VERIFIED=$(writer check "$MNT/disk" "$WORK"/record.* 2>"$WORK/check.err") || status=$?
  [ $status -eq 0 ] || lost "$(cat "$WORK/check.err")"
}
power_goes() {
  kill_daemon
  cut_connection
  stop_load
  umount -l "$MNT" 2>/dev/null || true
  CONNECTION=
  command_disks cut $((SEED + RANDOM))
}

mkdir "$WORK/backing" "$DISKS" "$ARRAY"
for i in 0 1 2 3 4; do truncate -s 40M "$WORK/backing/ssd$i"; done
for i in 0 1; do truncate -s 24M "$WORK/backing/log$i"; done
"$FAULT_FS" "$WORK/backing" "$DISKS" 2>"$WORK/fault_fs.err" &
DISKS_SERVER=$!
disown $DISKS_SERVER
for ((tries = 0; tries < 600; ++tries)); do
  mountpoint -q "$DISKS" && break
  alive $DISKS_SERVER || die "fault_fs: $(cat "$WORK/fault_fs.err")"
  sleep 0.1
done
"$EPLOG" create "$ARRAY/array.toml" --level 6 --ssds "$(members ssd 5)" --logs "$(members log 2)" >/dev/null || die "create"
"$EPLOG" volume create "$ARRAY" disk 48M
start_daemon
for ((i = 0; i < WRITERS; ++i)); do : >"$WORK/record.$i"; done
stop_daemon

for ((round = 1; round <= ROUNDS; ++round)); do
  start_daemon "${OPTIONS[@]}" || lost "the array does not mount: $(cat "$WORK/mount.err")"
  verify
  before=$(lines)
  start_writers $round
  # What a disk may do without being at fault.
  for disk in ssd$((RANDOM % 5)) ssd$((RANDOM % 5)) log$((RANDOM % 2)); do
    for kind in read write; do
      command_disks fault $disk $kind short 20
      command_disks fault $disk $kind EINTR 10
      command_disks fault $disk $kind EAGAIN 10
    done
    command_disks fault $disk fsync EINTR 3
  done
  for ((tries = 0; tries < 6000; ++tries)); do
    [ "$(lines)" -lt $((before + 30)) ] || break
    sleep 0.1
  done
  [ "$(lines)" -ge $((before + 30)) ] || die "the writers do nothing"
  random_sleep 100 1500
  [ ${#OPTIONS[@]} -gt 0 ] || [ -z "$(states)" ] || die "not ok, for nothing that a disk may not do: $(states)"
  power_goes
  say "round $round: ${VERIFIED:-0} blocks verified before, $(($(lines) - before)) requests durable since"
done
start_daemon || lost "the array does not mount: $(cat "$WORK/mount.err")"
verify
say "$VERIFIED blocks verified after the last round"
grep -v ' faults 0 ' "$DISKS/.control" >"$WORK/report" || true
sed 's/^/  /' "$WORK/report"
[ "$(awk '{ lost += $5 } END { print lost }' "$WORK/report")" -gt 0 ] || die "no power cut lost anything: nothing was tried"
[ "$(awk '{ met += $3 } END { print met }' "$WORK/report")" -gt 0 ] || die "no fault was met"
stop_daemon
check_array

# No device is to blame when the file system below is full: the array stops, and is as it was flushed when there is room.
for full in ssd1 log0 '*'; do
  say "no room for $full"
  start_daemon || lost "what was full once does not mount: $(cat "$WORK/mount.err")"
  verify
  before=$(lines)
  start_writers full
  for ((tries = 0; tries < 6000; ++tries)); do
    [ "$(lines)" -lt $((before + 10)) ] || break
    sleep 0.1
  done
  [ "$(lines)" -ge $((before + 10)) ] || die "the writers do nothing"
  command_disks fault "$full" write ENOSPC 1000000
  for ((tries = 0; tries < 6000; ++tries)); do
    "$EPLOG" status "$ARRAY" --json >"$WORK/status.json" || true
    [ "$(array_state)" != failed ] || break
    sleep 0.1
  done
  [ "$(array_state)" = failed ] || die "it goes on without room below"
  grep -qi 'no space' "$WORK/status.json" || die "it does not say why it has stopped: $(cat "$WORK/status.json")"
  command_disks well
  power_goes
done
start_daemon || lost "what was full once does not mount: $(cat "$WORK/mount.err")"
verify
[ -z "$(states)" ] || die "not ok, though nothing but room was missing: $(states)"
stop_daemon
check_array
say "passed in $(elapsed) s, $VERIFIED blocks verified at last"
