#!/usr/bin/env bash
# Real faults on an array at work: members that are cut short, deleted, overwritten behind the daemon's back, that fail
# requests, hang or vanish, alone and in pairs; the daemon killed while it rebuilds and while it commits. Meanwhile fio writes and
# verifies one volume, and on another lies an ext4 with a database that commits all the time.
#
# After each fault: replacements are rebuilt, a scrub heals until it finds nothing, and then the file system, the database, each
# commit that returned, every byte of fio's, `eplog check` must be right; the device that had the fault, and no other, is
# blamed. The longest request is told, and bounded against hanging only. Each fault is proven to have struck.
#
#   faults_test.sh PATH-TO-EPLOG [--canary]
#
# --canary  overwrites more devices than redundancy can replace; passes if the loss is found
#
# ROUNDS (1), CASES (all; `make test` takes some, by tests/CMakeLists.txt), SEED and LOAD_SECONDS (0.3: load beside each state of things) come from the environment;
# KEEP=1 keeps what a failed run left.
set -euo pipefail
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "$0")/lib.sh" "$1"
shift
ROUNDS=${ROUNDS:-1}
LOAD_SECONDS=${LOAD_SECONDS:-0.3}
case ${1:-} in
  --canary)
    need_fuse
    need_loop
    status=0
    CASES=too_many bash "$0" "$EPLOG" || status=$?
    [ $status -eq $LOST ] || die "three SSDs were overwritten, and the test ended with $status instead of $LOST"
    say "what redundancy cannot replace is found, as it must be"
    exit 0
    ;;
  ?*) die "unknown option $1" ;;
esac
CASES=${CASES:-truncated deleted blocks_of_slots blocks_of_log blocks_anywhere read_errors write_errors hangs killed_rebuilding
  killed_committing log_removed two_ssds ssd_and_log both_logs}
need_fuse
need_loop
need_programs fio python3 mkfs.ext4 e2fsck mount umount sha256sum
python3 -c 'import sqlite3' 2>/dev/null || skip "there is no sqlite3 in python3"
HERE=$(cd "$(dirname "$0")" && pwd)
make_work
trap 'end_test $?' EXIT
say "seed $SEED: SEED=$SEED CASES='...' $0 ... chooses the same devices again"
readonly SSDS=6 LOGS=2
readonly RECORD=$WORK/record STATUS=$WORK/status.json EVENTS=$WORK/events
DEADLINE_S=   # of a device's request; a request to the array may take a little more
FIO=          # the process that runs fio again and again
LIVES=0       # how often the load has been started
JOINED=0      # replacements so far: each has a path of its own
SEEN=0        # events before this case
SUM_STILL=    # of what fio has written once and for all
SUM_ALL=      # of all of its volume, when the array was unmounted

end_test() {  # EXIT-STATUS
  set +e
  touch "$WORK/stop"
  [ -z "$FIO" ] || bounded 300 tail --pid="$FIO" -s 0.1 -f /dev/null  # with its pass
  (exit "$1")
  put_away
}

faults() { python3 "$HERE/faults.py" "$@"; }

# ---- what the array says

look() { "$EPLOG" status "$ARRAY" --json >"$STATUS" || [ $? -eq 3 ] || die "status"; }
holds() { look && faults is "$STATUS" "$1"; }

wait_until() {  # SECONDS EXPRESSION
  local until=$((SECONDS + $1))
  until holds "$2"; do
    [ $SECONDS -lt $until ] || die "not within $1 s: $2; $("$EPLOG" status "$ARRAY")"
    sleep 0.05
  done
}

path_of() {  # DEVICE
  look
  python3 -c 'import json, sys
print(next(d["path"] for d in json.load(open(sys.argv[1]))["devices"] if d["name"] == sys.argv[2]))' "$STATUS" "$1"
}

# ---- load

fio_run() {  # NAME OPTION...
  local name=$1
  shift
  fio --name="$name" --filename="$MNT/raw" --direct=1 --ioengine=io_uring --iodepth=8 --allow_file_create=0 \
    --verify=crc32c --verify_interval=4096 --verify_fatal=1 --output-format=json --output="$WORK/$name.json" "$@" \
    2>"$WORK/$name.err"
}

# Writes the second half of the volume in random order and reads all of it back, again and again.
fio_passes() {  # until there is a file $WORK/stop
  local pass name
  for ((pass = 0; 1; ++pass)); do
    [ ! -e "$WORK/stop" ] || return 0
    name=pass.$LIVES.$pass
    fio_run "$name" --rw=randwrite --bsrange=4k-32k --offset=16M --size=8M --verify_backlog=256 --randseed="$SEED$pass" \
      --rate_iops=1000,1000 || {
      mv "$WORK/$name.json" "$WORK/failed.json"
      mv "$WORK/$name.err" "$WORK/fio.failed"
      return 0
    }
  done
}

start_load() {
  rm -f "$WORK/stop" "$WORK/fio.failed"
  LIVES=$((LIVES + 1))
  fio_passes &
  FIO=$!
  put_load write_database
  go_on
}

write_database() {
  exec python3 "$HERE/sqlite_writer.py" write "$FS/database" "$RECORD" "$SEED.$SECONDS" WAL "$MNT" 0.02 2>"$WORK/writer.err"
}

# Faults stop nothing: commits return and fio writes, now as before.
go_on() {
  [ ! -e "$WORK/fio.failed" ] || fio_failed
  wait_for_work "$RECORD" $(($(wc -l <"$RECORD") + 3))
  sleep "$LOAD_SECONDS"
  [ ! -e "$WORK/fio.failed" ] || fio_failed
}

fio_failed() { lost "fio: $(head -c 1000 "$WORK/fio.failed")"; }

end_fio() {
  [ -n "$FIO" ] || return 0
  touch "$WORK/stop"
  bounded 600 tail --pid="$FIO" -s 0.1 -f /dev/null || die "fio does not end"
  FIO=
}

end_load() {
  alive "${LOAD[0]}" || lost "$(cat "$WORK/writer.err")"
  end_fio
  [ ! -e "$WORK/fio.failed" ] || fio_failed
  stop_load
}

# The daemon dies, and what fio had on its way with it.
crash_all() {
  touch "$WORK/stop"
  crash
  end_fio
  ! grep -qs "^verify: bad" "$WORK/fio.failed" || fio_failed
}

# ---- before and after

begin() {  # CASE
  start_daemon --io-deadline ${DEADLINE_S}s || lost "the array does not mount: $(cat "$WORK/mount.err")"
  [ -z "$SUM_ALL" ] || [ "$(sum_of 24)" = "$SUM_ALL" ] || lost "fio's volume has changed between two mounts"
  SUM_ALL=
  attach_loop disk
  bounded 600 mount "$LOOP" "$FS" || lost "the file system does not mount"
  rm -f "$FS"/database* "$WORK"/pass.*
  : >"$RECORD"
  "$EPLOG" events "$ARRAY" >"$EVENTS"
  SEEN=$(wc -l <"$EVENTS")
  start_load
}

sum_of() {  # MIB
  dd if="$MNT/raw" bs=1M count="$1" iflag=direct status=none | sha256sum
}

scrub_until_clean() {
  local tries status
  for ((tries = 0; tries < 5; ++tries)); do
    status=0
    bounded 1200 "$EPLOG" scrub "$ARRAY" --repair --json >"$WORK/scrub.json" 2>"$WORK/scrub.err" || status=$?
    [ $status -ne 0 ] || return 0
    [ $status -eq 3 ] || die "scrub ended with $status: $(tail -n 1 "$WORK/scrub.err")"
    python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["lost"] != 0)' "$WORK/scrub.json" ||
      lost "a scrub found what is beyond repair: $(head -c 1000 "$WORK/scrub.json")"
  done
  die "scrubs go on finding: $(head -c 1000 "$WORK/scrub.json")"
}

# Everything is as it must be, and only these devices are blamed.
finish() {  # DEVICE...
  local status=0 stall=0
  go_on
  wait_until 600 'all(x["state"] == "ok" for x in d["devices"])'
  scrub_until_clean
  end_load
  bounded 600 umount "$FS" || die "umount of the file system"
  e2fsck -fn "$LOOP" >"$WORK/fsck.out" 2>&1 || lost "e2fsck, exit status $?: $(head -c 2000 "$WORK/fsck.out")"
  bounded 600 mount "$LOOP" "$FS" || lost "the file system does not mount"
  COMMITS=$(python3 "$HERE/sqlite_writer.py" check "$FS/database" "$RECORD" 2>"$WORK/database.err") || status=$?
  [ $status -eq 0 ] || lost "$(cat "$WORK/database.err")"
  bounded 600 umount "$FS" || die "umount of the file system"
  detach_loop
  fio_run verify --rw=read --bs=64k --size=24M || lost "fio: $(grep -hi verify "$WORK"/verify.* | head -n 5)"
  [ "$(sum_of 16)" = "$SUM_STILL" ] || lost "what fio wrote first has changed"
  SUM_ALL=$(sum_of 24)
  [ -e "$WORK/pass.$LIVES.0.json" ] || die "fio has not passed once"
  STALL=$(faults stall "$WORK"/pass.*.json $((DEADLINE_S * 1000 + 60000))) || stall=$?
  [ $stall -eq 0 ] || die "a request took $STALL ms"
  look
  "$EPLOG" events "$ARRAY" >"$EVENTS"
  faults judge "$STATUS" "$EVENTS" "$SEEN" "$@" || die "blame"
  stop_daemon
  check_array
}

replace() {  # DEVICE...: and wait for the rebuild, under load
  local device old
  for device in "$@"; do
    old=$(path_of "$device")
    JOINED=$((JOINED + 1))
    "$EPLOG" replace "$ARRAY" "$device" "$ARRAY/$device-$JOINED" >/dev/null || die "replace $device"
    rm -f "$old"
  done
  go_on
  wait_until 600 'all(x["state"] == "ok" for x in d["devices"])'
}

struck() { holds "$1" || die "the fault did not strike: $1; $("$EPLOG" status "$ARRAY")"; }  # EXPRESSION
inject() { "$EPLOG" inject "$ARRAY" "$@" >/dev/null || die "inject $*"; }
failed() { wait_until 300 "device('$1')['state'] == 'failed'"; }
random_ssd() { SSD=ssd$((RANDOM % SSDS)); }
random_log() { LOG=log$((RANDOM % LOGS)); }
random_device() {
  local i=$((RANDOM % (SSDS + LOGS)))
  DEVICE=$([ $i -lt $SSDS ] && echo ssd$i || echo log$((i - SSDS)))
}

# From the superblock: where an SSD's areas begin.
offset_of() {  # FILE AREA
  "$EPLOG" inspect "$1" superblock --json | python3 -c 'import json, re, sys
print(re.search(r"\"%s_offset_bytes\": *(\d+)" % sys.argv[1], sys.stdin.read()).group(1))' "$2"
}

# ---- the faults

# Reads beyond the new end fail, writes there make the file longer again, with a hole that reads as zeros. Either fails the
# device, or all is healed; and if it is too short in the end, it is refused by name until its size is restored.
case_truncated() {
  local path
  random_ssd
  path=$(path_of $SSD)
  truncate -s $(($(offset_of "$path" slots) + (2 << 20))) "$path"  # a third of what it holds
  bounded 600 "$EPLOG" scrub "$ARRAY" --repair >/dev/null 2>&1 || true
  failed $SSD
  struck "device('$SSD')['state'] == 'failed'"
  go_on
  replace $SSD
  finish $SSD
}

# The daemon holds it open and does not care. Then it is missing.
case_deleted() {
  random_ssd
  rm "$(path_of $SSD)"
  go_on
  struck "device('$SSD')['state'] == 'ok'"
  end_load
  shut_down
  boot disk --io-deadline ${DEADLINE_S}s
  start_load
  struck "device('$SSD')['state'] == 'missing'"
  go_on
  replace $SSD
  finish $SSD
}

case_blocks_of_slots() {
  local path
  random_ssd
  path=$(path_of $SSD)
  faults damage "$path" "$(offset_of "$path" slots)" "$(stat -c %s "$path")" 0.01 "$SEED" >/dev/null
  go_on
  scrub_until_clean
  struck "device('$SSD')['corrupt_chunks'] > 0"
  finish $SSD
}

case_blocks_of_log() {
  local path
  random_log
  path=$(path_of $LOG)
  faults damage "$path" 65536 "$(stat -c %s "$path")" 0.1 "$SEED" >/dev/null
  scrub_until_clean
  struck "device('$LOG')['corrupt_chunks'] > 0"
  finish $LOG
}

# Rings and checkpoints as well, and an opening that needs them.
case_blocks_anywhere() {
  local path
  random_ssd
  path=$(path_of $SSD)
  faults damage "$path" "$(offset_of "$path" slots)" "$(stat -c %s "$path")" 0.01 "$SEED" >/dev/null
  faults damage "$path" "$(offset_of "$path" metadata)" "$(offset_of "$path" slots)" 0.3 "$SEED" >/dev/null
  crash_all
  boot disk --io-deadline ${DEADLINE_S}s
  start_load
  scrub_until_clean
  struck "device('$SSD')['corrupt_chunks'] > 0"
  finish $SSD
}

# A few are healed, many fail the device.
case_read_errors() {
  random_ssd
  inject $SSD --read-error 0.005
  wait_until 300 "device('$SSD')['read_errors'] > 0"
  go_on
  inject clear
  scrub_until_clean
  inject $SSD --read-error 1
  bounded 600 "$EPLOG" scrub "$ARRAY" >/dev/null 2>&1 || true
  failed $SSD
  inject clear
  struck "device('$SSD')['read_errors'] >= 32"
  replace $SSD
  finish $SSD
}

case_write_errors() {
  random_device
  inject $DEVICE --write-error 0.05
  failed $DEVICE
  struck "device('$DEVICE')['write_errors'] > 0"
  go_on
  replace $DEVICE
  finish $DEVICE
}

case_hangs() {
  random_device
  inject $DEVICE --hang
  failed $DEVICE
  struck "'hangs' in device('$DEVICE')['failed_because']"
  go_on
  replace $DEVICE
  finish $DEVICE
}

# The rebuild is held up by a slow neighbour so that the kill meets it.
case_killed_rebuilding() {
  random_ssd
  local slow=ssd$(((${SSD#ssd} + 1) % SSDS))
  inject $SSD --drop
  failed $SSD
  inject $slow --slow 20
  JOINED=$((JOINED + 1))
  "$EPLOG" replace "$ARRAY" $SSD "$ARRAY/$SSD-$JOINED" >/dev/null || die "replace"
  wait_until 300 "device('$SSD')['state'] == 'rebuilding' and d['rebuild']['percent'] > 2"
  struck "d['rebuild']['percent'] < 90"
  crash_all
  boot disk --io-deadline ${DEADLINE_S}s
  # It goes on, and needs little time without a load and that neighbour.
  struck "d['traffic']['ssd_repair_bytes'] > 0"
  start_load
  wait_until 600 'all(x["state"] == "ok" for x in d["devices"])'
  finish $SSD
}

case_killed_committing() {
  local before commit
  random_ssd
  wait_until 300 "d['exposure']['pending_chunks'] > 800"
  inject $SSD --slow 300
  before=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["traffic"]["committed_stripes"])' "$STATUS")
  "$EPLOG" commit "$ARRAY" >/dev/null 2>&1 &
  commit=$!
  wait_until 300 "d['traffic']['committed_stripes'] > $before and d['exposure']['pending_chunks'] > 0"
  kill -0 $commit 2>/dev/null || die "the commit was done before the kill"
  crash_all
  ! wait $commit || die "a commit that was killed has returned success"
  check_array
  boot disk --io-deadline ${DEADLINE_S}s
  start_load
  finish
}

case_log_removed() {
  random_log
  inject $LOG --drop
  rm "$(path_of $LOG)"
  failed $LOG
  go_on
  replace $LOG
  finish $LOG
}

# Both at one moment; then a kill while nothing more may be lost; only then replacements.
lose_two() {  # DEVICE DEVICE
  inject "$1" --drop
  inject "$2" --write-error 1
  failed "$1"
  failed "$2"
  struck "d['exposure']['further_ssd_losses_survived'] == 0"
  go_on
  crash_all
  rm "$(path_of "$1")"
  boot disk --io-deadline ${DEADLINE_S}s
  struck "device('$1')['state'] == 'missing' and device('$2')['state'] == 'failed'"
  start_load
  replace "$1" "$2"
  finish "$1" "$2"
}

case_two_ssds() {
  random_ssd
  lose_two $SSD ssd$(((${SSD#ssd} + 1 + RANDOM % (SSDS - 1)) % SSDS))
}
case_ssd_and_log() {
  random_ssd
  random_log
  lose_two $SSD $LOG
}
case_both_logs() { lose_two log0 log1; }

# What must be found: no redundancy is left for these.
case_too_many() {
  local i path
  for i in 0 1 2; do
    path=$(path_of ssd$i)
    faults damage "$path" "$(offset_of "$path" slots)" "$(stat -c %s "$path")" 0.9 "$SEED" >/dev/null
  done
  go_on
  finish ssd0 ssd1 ssd2
}

create_array --level 6 --ssds $SSDS --logs $LOGS --device-size 40M --log-size 40M
"$EPLOG" volume create "$ARRAY" raw 24M >/dev/null
"$EPLOG" volume create "$ARRAY" disk 64M >/dev/null
start_daemon || die "mount: $(cat "$WORK/mount.err")"
fio_run still --rw=write --bs=64k --size=24M --end_fsync=1 || die "fio"
SUM_STILL=$(sum_of 16)
attach_loop disk
mkfs.ext4 -q -b 4096 "$LOOP" || die "mkfs"
shut_down
: >"$RECORD"
for ((round = 1; round <= ROUNDS; ++round)); do
  for name in $CASES; do
    before=$(elapsed)
    # Short only where it matters: the disk of a busy machine may be silent for seconds.
    DEADLINE_S=$([ "$name" = hangs ] && echo 10 || echo 60)
    begin
    "case_$name"
    say "$name: $COMMITS commits verified, longest request $STALL ms, $(($(elapsed) - before)) s"
  done
done
say "passed in $(elapsed) s"
