#!/usr/bin/env bash
# Spares: they step in by themselves when a device fails, is taken away, or is missing at mounting, for SSDs and for log
# devices; data is the same afterwards, by checksum and by `check`; a kill at the worst moment loses neither the array
# nor the spare. And every refusal of `spare add` and `spare remove`.
#
#   spare_test.sh PATH-TO-EPLOG
source "$(dirname "$0")/lib.sh" "$1"

need_fuse
need_programs python3 sha256sum dd
make_work
readonly SSD_BYTES=$((24 << 20)) LOG_BYTES=$((12 << 20)) BLOCKS=4096

refused() {  # STATUS REGEX COMMAND...: one line on standard error
  local expected=$1 regex=$2 status=0
  shift 2
  "$@" >"$WORK/out" 2>"$WORK/err" || status=$?
  [ $status -eq "$expected" ] || die "exit status $status instead of $expected: $* ($(head -c 300 "$WORK/err"))"
  [ "$(wc -l <"$WORK/err")" -eq 1 ] || die "not one line but: $(cat "$WORK/err") <- $*"
  grep -Eq -- "$regex" "$WORK/err" || die "'$(cat "$WORK/err")' does not match '$regex' <- $*"
  say "  $(cat "$WORK/err")"
}
eplog() { "$EPLOG" "$@" >"$WORK/out" 2>"$WORK/err" || die "exit status $?: eplog $*: $(head -c 500 "$WORK/err")"; }

# status_is EXPRESSION: of the status document d; devices by name in v.
status_value() {
  { "$EPLOG" status "$ARRAY" --json 2>/dev/null || [ $? -eq 3 ]; } | python3 -c "
import json, sys
d = json.load(sys.stdin)
v = {x['name']: x for x in d['devices']}
print(($1))"
}
wait_for() {  # EXPRESSION: until it is True
  local tries
  for ((tries = 0; tries < 3000; ++tries)); do
    [ "$(status_value "$1")" = True ] && return 0
    sleep 0.1
  done
  die "it does not come to that: $1; $("$EPLOG" status "$ARRAY"; "$EPLOG" events "$ARRAY" | tail -n 20)"
}
readonly WHOLE="d['array']['state'] in ('clean', 'active')"
path_of() { status_value "v['$1']['path']"; }
told() { "$EPLOG" events "$ARRAY" | grep -c "\"event\":\"$1\".*$2" || true; }
events_tell() {  # the file is written a little after the event
  local tries
  for ((tries = 0; tries < 300; ++tries)); do
    [ "$(told "$1" "${2:-}")" -gt 0 ] && return 0
    sleep 0.2
  done
  die "no event $1 ${2:-}: $("$EPLOG" events "$ARRAY" | tail -n 20)"
}
listed() { grep -c '^\[\[spare\]\]' "$ARRAY/array.toml"; }

write_some() {  # with flushes, so that a lost device is met
  local at
  for at in 1 2 3; do
    dd if=/dev/urandom of="$MNT/disk" bs=4k count=200 seek=$((RANDOM % (BLOCKS - 200))) conv=notrunc,fsync \
      oflag=direct status=none || die "a write fails"
  done
  sha256sum "$MNT/disk" >"$WORK/sum"
}
verify() {
  echo 3 >/proc/sys/vm/drop_caches 2>/dev/null || true
  sha256sum --check --status "$WORK/sum" || lost "the volume has changed"
}
make_spare() {  # NAME BYTES
  truncate -s "$2" "$ARRAY/$1" && eplog spare add "$ARRAY" "$ARRAY/$1"
}

say "== add, list, remove: refusals"
create_array --level 6 --ssds 6 --logs 2 --device-size $SSD_BYTES --log-size $LOG_BYTES
"$EPLOG" create "$WORK/other" --level 5 --ssds 3 --logs 1 --device-size 10M --log-size 4M >/dev/null || die "create"
eplog volume create "$ARRAY" disk 16M
eplog spare list "$ARRAY"
grep -q 'has no spares' "$WORK/out" || die "$(cat "$WORK/out")"
refused 1 'is ssd2 of this array' "$EPLOG" spare add "$ARRAY" "$ARRAY/ssd2" --force
refused 1 'holds a member .ssd0. of the EPLOG array .other.*--force' "$EPLOG" spare add "$ARRAY" "$WORK/other/ssd0"
truncate -s 1M "$WORK/tiny"
refused 2 'too small for every role' "$EPLOG" spare add "$ARRAY" "$WORK/tiny"
truncate -s $LOG_BYTES "$WORK/small"
refused 2 'too small for an SSD' "$EPLOG" spare add "$ARRAY" "$WORK/small" --for ssd
printf 'precious' >"$WORK/precious" && truncate -s $SSD_BYTES "$WORK/precious"
refused 1 'holds data; --force' "$EPLOG" spare add "$ARRAY" "$WORK/precious"
[ "$(head -c 8 "$WORK/precious")" = precious ] || die "a refusal wrote"
refused 1 'is no spare of' "$EPLOG" spare remove "$ARRAY" "$WORK/precious"
refused 1 'is no spare of' "$EPLOG" spare remove "$ARRAY" "$ARRAY/ssd0"
refused 1 'is no spare of' "$EPLOG" spare remove "$ARRAY" spare0
refused 2 'ROLE|--for|log' "$EPLOG" spare add "$ARRAY" "$WORK/precious" --for data
[ "$(listed)" -eq 0 ] || die "a refusal listed a spare"

eplog spare add "$ARRAY" "$WORK/precious" --force
grep -q 'fits SSDs and log devices' "$WORK/out" || die "$(cat "$WORK/out")"
ln -s "$WORK/precious" "$WORK/link"
refused 1 'is a spare of this array already' "$EPLOG" spare add "$ARRAY" "$WORK/precious"
refused 1 'is a spare of this array already' "$EPLOG" spare add "$ARRAY" "$WORK/link" --force
refused 1 'a spare of the EPLOG array' "$EPLOG" spare add "$WORK/other" "$WORK/precious"
truncate -s $SSD_BYTES "$WORK/e1" "$WORK/e2" "$WORK/e3"
refused 1 'holds a spare of the EPLOG array' "$EPLOG" create "$WORK/third" --level 5 --logs "$WORK/e3" \
  --ssds "$WORK/precious,$WORK/e1,$WORK/e2"
sed "s|^path = \"ssd1\"|path = \"$WORK/precious\"|; /^.*spare/,\$d" "$ARRAY/array.toml" >"$ARRAY/odd.toml"
"$EPLOG" check "$ARRAY/odd.toml" >"$WORK/out" 2>"$WORK/err"
[ $? -eq 3 ] && grep -q 'ssd1 .* is a spare and left out' "$WORK/err" || die "a spare as a member: $(cat "$WORK/err")"
rm "$ARRAY/odd.toml"
eplog spare add "$ARRAY" "$ARRAY/made" --for log
[ "$(stat -c %s "$ARRAY/made")" -le $LOG_BYTES ] || die "a file for a log device is as large as an SSD"
eplog spare list "$ARRAY" --json
[ "$(python3 -c "
import json
print([(s['name'], s['state'], s['fits'], s['path']) for s in json.load(open('$WORK/out'))])")" = \
  "[('spare0', 'ok', ['ssd', 'log'], '$WORK/precious'), ('spare1', 'ok', ['log'], '$ARRAY/made')]" ] ||
  die "list: $(cat "$WORK/out")"
"$EPLOG" inspect "$WORK/precious" >"$WORK/out" 2>&1 || die "inspect: $(cat "$WORK/out")"
eplog spare remove "$ARRAY" spare1
mv "$WORK/precious" "$WORK/away"
[ "$(status_value "v['spare0']['state'], v['spare0']['role']")" = "('missing', 'spare')" ] || die "a spare that is away"
eplog spare remove "$ARRAY" "$WORK/precious"
mv "$WORK/away" "$WORK/precious"
eplog spare remove "$ARRAY" "$WORK/precious"  # not listed, and marked still
[ "$(listed)" -eq 0 ] || die "removed spares are listed"
refused 1 'is no spare of' "$EPLOG" spare remove "$ARRAY" "$WORK/precious"
eplog spare add "$ARRAY" "$WORK/precious"  # blank now
eplog spare remove "$ARRAY" "$WORK/precious"
rm "$WORK/precious" "$ARRAY/made"

say "== the list that is shown is the one that counts"
make_spare n-a $SSD_BYTES
make_spare n-b $SSD_BYTES
rm "$ARRAY/n-a"
start_daemon
truncate -s $SSD_BYTES "$ARRAY/n-a"
eplog spare add "$ARRAY" "$ARRAY/n-a"  # known, and missing until now: it goes to the end
[ "$(status_value "v['spare0']['path'], v['spare1']['path']")" = "('$ARRAY/n-b', '$ARRAY/n-a')" ] || die "$("$EPLOG" spare list "$ARRAY")"
eplog spare remove "$ARRAY" spare0
[ "$(status_value "v['spare0']['path']")" = "$ARRAY/n-a" ] || die "another was removed: $("$EPLOG" spare list "$ARRAY")"
refused 1 'is no spare of' "$EPLOG" spare remove "$ARRAY" spare1
say "== a path that no request can carry"
odd=$WORK/$(printf 'odd\377')
mkdir "$odd" && truncate -s $SSD_BYTES "$odd/device" && ln -s "$odd/device" "$WORK/plain"
no_such_path() {  # nothing is written, neither by a serving process nor by the verb alone
  refused 2 "device is not UTF-8, and array.toml can name no such path: give a link" "$EPLOG" spare add "$ARRAY" "$odd/device"
  refused 2 'device is not UTF-8' "$EPLOG" replace "$ARRAY" ssd0 "$odd/device"
  refused 2 'device is not UTF-8' "$EPLOG" replace "$ARRAY" ssd0 "$odd/device" --dry-run
  cmp -s <(head -c $SSD_BYTES /dev/zero) "$odd/device" || die "a refusal wrote"
}
no_such_path
eplog spare add "$ARRAY" "$WORK/plain"
eplog spare remove "$ARRAY" "$WORK/plain"
say "== array.toml is gone, and a spare has stepped in"
eplog fail "$ARRAY" ssd1
wait_for "v['ssd1']['path'] == '$ARRAY/n-a' and $WHOLE"
rm "$ARRAY/array.toml"
eplog spare add "$ARRAY" "$ARRAY/n-b"
[ "$(listed)" -eq 1 ] && grep -q '^path = "n-a"' "$ARRAY/array.toml" && grep -q '^path = "n-b"' "$ARRAY/array.toml" ||
  die "written anew: $(cat "$ARRAY/array.toml")"
eplog spare remove "$ARRAY" spare0
rm "$ARRAY/array.toml"
eplog fail "$ARRAY" ssd1
eplog replace "$ARRAY" ssd1 "$ARRAY/ssd1" --force
[ "$(listed)" -eq 0 ] && grep -q '^path = "ssd1"' "$ARRAY/array.toml" || die "written anew: $(cat "$ARRAY/array.toml")"
wait_for "$WHOLE"
truncate -s $SSD_BYTES "$ARRAY/n-d"
eplog fail "$ARRAY" ssd0
eplog replace "$ARRAY" ssd0 "$ARRAY/n-d"
rm "$ARRAY/array.toml"
eplog spare add "$ARRAY" "$ARRAY/n-b"
[ "$(listed)" -eq 1 ] && grep -q '^path = "n-d"' "$ARRAY/array.toml" || die "written anew: $(cat "$ARRAY/array.toml")"
eplog spare remove "$ARRAY" spare0
wait_for "$WHOLE"
rm "$ARRAY/n-b" "$ARRAY/n-a"
stop_daemon
eplog fail "$ARRAY" ssd0
no_such_path
[ "$(status_value "v['ssd0']['state']")" = failed ] || die "$("$EPLOG" status "$ARRAY")"
eplog replace "$ARRAY" ssd0 "$ARRAY/n-d" --force
eplog rebuild "$ARRAY"
start_daemon
say "== another array has taken the name of the folder"
truncate -s $SSD_BYTES "$WORK/n-c"
eplog spare add "$ARRAY" "$WORK/n-c"
mv "$ARRAY" "$WORK/moved"
"$EPLOG" create "$ARRAY" --level 5 --ssds 3 --logs 1 --device-size 10M --log-size 4M >/dev/null || die "create"
sha256sum "$ARRAY/array.toml" >"$WORK/toml.sum"
"$EPLOG" fail "$WORK/moved" ssd2 >"$WORK/out" 2>&1 || die "$(cat "$WORK/out")"
OTHER=$ARRAY ARRAY=$WORK/moved
wait_for "v['ssd2']['path'] == '$WORK/n-c' and $WHOLE"
stop_daemon
ARRAY=$OTHER
sha256sum --check --status "$WORK/toml.sum" || die "the other array's was changed: $(cat "$ARRAY/array.toml")"
[ ! -e "$ARRAY/events.jsonl" ] || die "events of another array: $(cat "$ARRAY/events.jsonl")"
rm -r "$ARRAY" && mv "$WORK/moved" "$ARRAY"
start_daemon
wait_for "v['ssd2']['path'] == '$WORK/n-c' and $WHOLE"
stop_daemon
[ "$(listed)" -eq 0 ] || die "not written down: $(cat "$ARRAY/array.toml")"
check_array

say "== an SSD and a log device fail, one after the other"
make_spare s-ssd $SSD_BYTES
start_daemon
make_spare s-log $LOG_BYTES  # through the socket
[ "$(status_value "v['spare0']['state'], v['spare1']['state']")" = "('ok', 'ok')" ] || die "spares of a mounted array"
refused 1 'is a spare of this array already' "$EPLOG" spare add "$ARRAY" "$ARRAY/s-log"
dd if=/dev/urandom of="$MNT/disk" bs=1M count=16 conv=notrunc,fsync status=none
write_some
eplog inject "$ARRAY" ssd3 --drop
write_some
wait_for "v['ssd3']['path'] == '$ARRAY/s-ssd'"
events_tell spare_joined "$ARRAY/s-ssd"
verify
wait_for "$WHOLE"
eplog fail "$ARRAY" log1
wait_for "v['log1']['path'] == '$ARRAY/s-log' and $WHOLE"
events_tell spare_joined '"device":"log1"\|log1'
[ "$(listed)" -eq 0 ] || die "a spare that stepped in is listed"
grep -q '^path = "s-ssd"' "$ARRAY/array.toml" || die "$(cat "$ARRAY/array.toml")"
write_some
verify
say "== none is left"
eplog fail "$ARRAY" ssd0
wait_for "v['ssd0']['state'] == 'failed'"
for ((tries = 0; tries < 3000; ++tries)); do
  [ "$(told no_spare ssd0)" -gt 0 ] && break
  sleep 0.1
done
events_tell no_spare ssd0
make_spare s-late $SSD_BYTES  # steps in at once
wait_for "v['ssd0']['path'] == '$ARRAY/s-late' and $WHOLE"
verify
stop_daemon
check_array

say "== both at once; a spare chosen by hand"
make_spare t0 $SSD_BYTES
make_spare t1 $((SSD_BYTES + (1 << 20)))
make_spare t2 $((SSD_BYTES + (2 << 20)))
start_daemon
eplog inject "$ARRAY" ssd1 --drop
eplog inject "$ARRAY" log0 --drop
write_some
wait_for "v['ssd1']['path'] != '' and v['log0']['path'] != '' and $WHOLE"
[ "$(status_value "sorted([v['ssd1']['path'], v['log0']['path']])")" = "['$ARRAY/t0', '$ARRAY/t1']" ] ||
  die "not the smallest: $("$EPLOG" status "$ARRAY")"
verify
make_spare t3 $SSD_BYTES
eplog spare remove "$ARRAY" "$ARRAY/t3"
refused 1 'is no spare of' "$EPLOG" spare remove "$ARRAY" "$ARRAY/t3"
stop_daemon
check_array
eplog fail "$ARRAY" ssd5
eplog replace "$ARRAY" ssd5 "$ARRAY/t2"  # a spare needs no --force
eplog rebuild "$ARRAY"
[ "$(listed)" -eq 0 ] && [ "$(path_of ssd5)" = "$ARRAY/t2" ] || die "a spare chosen by hand: $(cat "$ARRAY/array.toml")"
check_array

say "== mounted degraded: a rebuild begins by itself; read-only it does not"
make_spare u0 $SSD_BYTES
mv "$ARRAY/ssd4" "$WORK/gone"
start_daemon --read-only
sleep 0.5
[ "$(status_value "v['ssd4']['state'], v['spare0']['state']")" = "('missing', 'ok')" ] || die "read-only"
refused 1 'read-only' "$EPLOG" spare remove "$ARRAY" spare0
stop_daemon
start_daemon
wait_for "v['ssd4']['path'] == '$ARRAY/u0' and $WHOLE"
verify
stop_daemon
mv "$WORK/gone" "$ARRAY/ssd4"
check_array
refused 1 'holds a member .ssd4.' "$EPLOG" spare add "$ARRAY" "$ARRAY/ssd4"

say "== killed after it stepped in, before that was written down"
make_spare w0 $SSD_BYTES
cp "$ARRAY/array.toml" "$WORK/before.toml"
start_daemon
write_some
eplog fail "$ARRAY" ssd2
wait_for "v['ssd2']['path'] == '$ARRAY/w0'"
write_some
kill_daemon
umount -l "$MNT" 2>/dev/null || true
cp "$WORK/before.toml" "$ARRAY/array.toml"  # the old ssd2 is there too, and stale
"$EPLOG" check "$ARRAY" >"$WORK/out" 2>&1 || [ $? -eq 3 ] || lost "check: $(cat "$WORK/out")"
start_daemon
wait_for "v['ssd2']['path'] == '$ARRAY/w0' and $WHOLE"
[ "$(listed)" -eq 0 ] || die "not written down at the next opening: $(cat "$ARRAY/array.toml")"
verify
stop_daemon
check_array

say "== killed while it was being rebuilt, before that was written down: left out by hand it is left alone"
make_spare w1 $SSD_BYTES
cp "$ARRAY/array.toml" "$WORK/before.toml"
start_daemon
write_some
eplog inject "$ARRAY" ssd0 --slow 1000  # of which it is rebuilt
eplog fail "$ARRAY" ssd3
wait_for "v['ssd3']['path'] == '$ARRAY/w1'"
kill_daemon
umount -l "$MNT" 2>/dev/null || true
cp "$WORK/before.toml" "$ARRAY/array.toml"
sha256sum "$ARRAY/w1" >"$WORK/w1.sum"
for device in "$ARRAY/w1" ssd3; do
  start_daemon --without "$device"
  [ "$(status_value "v['ssd3']['state'] != 'ok' and '$ARRAY/w1' not in [x['path'] for x in d['devices']]")" = True ] ||
    die "--without $device: $("$EPLOG" status "$ARRAY")"
  verify
  stop_daemon
  sha256sum --check --status "$WORK/w1.sum" || die "--without $device: it was written to"
done
start_daemon
wait_for "v['ssd3']['path'] == '$ARRAY/w1' and $WHOLE"
verify
stop_daemon
[ "$(listed)" -eq 0 ] || die "it is a spare still: $(cat "$ARRAY/array.toml")"
check_array

say "== killed while it was stepping in: wiped, and no more"
make_spare x0 $SSD_BYTES
dd if=/dev/zero of="$ARRAY/x0" bs=4k count=16 conv=notrunc status=none
[ "$(status_value "v['spare0']['state']")" = ok ] || die "a blank spare"
start_daemon
eplog fail "$ARRAY" ssd5
wait_for "v['ssd5']['path'] == '$ARRAY/x0' and $WHOLE"
verify
stop_daemon
check_array

say "== killed again and again around the moment of stepping in"
for ((round = 0; round < ${ROUNDS:-6}; ++round)); do
  make_spare "y$round" $SSD_BYTES
  start_daemon
  write_some
  "$EPLOG" fail "$ARRAY" "ssd$((round % 6))" >/dev/null 2>&1 &  # it may be left without an answer
  failing=$!
  random_sleep 1 25
  kill_daemon
  wait $failing 2>/dev/null || true
  umount -l "$MNT" 2>/dev/null || true
  start_daemon || lost "the array does not mount: $(cat "$WORK/mount.err")"
  wait_for "$WHOLE and (v['ssd$((round % 6))']['path'] == '$ARRAY/y$round' or v['spare0']['path'] == '$ARRAY/y$round' and v['spare0']['state'] == 'ok')"
  say "  round $round: ssd$((round % 6)) is $(path_of "ssd$((round % 6))")"
  verify
  stop_daemon
  check_array
  while [ "$(listed)" -gt 0 ]; do eplog spare remove "$ARRAY" spare0; done
done

say "== a spare that cannot be used is named, and the next is taken"
make_spare z0 $SSD_BYTES
make_spare z1 $((SSD_BYTES + (1 << 20)))
printf 'something else now' | dd of="$ARRAY/z0" bs=4k conv=notrunc status=none
dd if=/dev/zero of="$ARRAY/z0" bs=4k seek=8 count=1 conv=notrunc status=none
start_daemon
[ "$(status_value "v['spare0']['state'], 'holds data' in v['spare0']['failed_because']")" = "('missing', True)" ] ||
  die "$("$EPLOG" status "$ARRAY")"
eplog fail "$ARRAY" log0
wait_for "v['log0']['path'] == '$ARRAY/z1' and $WHOLE"
verify
stop_daemon
check_array
say "passed in $(elapsed) s"
