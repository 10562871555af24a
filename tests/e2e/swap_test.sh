#!/usr/bin/env bash
# Devices swapped under their own paths: files that are deleted and made anew, links that lead to another disk, blank
# disks in dead ones' slots, disks that hang. What is at a path counts, not what was there; members that are out are let
# go; what is no good member is left out with a warning; nothing makes the array wait for a device for ever.
#
#   swap_test.sh PATH-TO-EPLOG
source "$(dirname "$0")/lib.sh" "$1"

need_fuse
need_programs python3 sha256sum dd
make_work
readonly SSD_BYTES=$((24 << 20)) LOG_BYTES=$((12 << 20))
BELOW=        # process of the array that other arrays lie on, which is made to hang
BELOW_MNT=$WORK/below.mnt

put_others_away() {  # what lies on the array under test, and arrays that are served beside it
  local i
  mountpoint -q "$FS" && bounded 60 umount "$FS"
  for ((i = ${#OWN_LOOPS[@]} - 1; i >= 0; --i)); do losetup -d "${OWN_LOOPS[$i]}"; done
  mountpoint -q "$WORK/other.mnt" || return 0
  bounded 60 "$EPLOG" umount "$WORK/other.mnt" >/dev/null 2>&1 || umount -l "$WORK/other.mnt"
}
thaw() {
  [ -n "$BELOW" ] || return 0
  kill -CONT "$BELOW" 2>/dev/null
  if [ -n "$DAEMON" ]; then
    bounded 120 "$EPLOG" umount "$MNT" >/dev/null 2>&1 && DAEMON=
  fi
  bounded 60 "$EPLOG" umount "$BELOW_MNT" >/dev/null 2>&1
  alive "$BELOW" && kill -9 "$BELOW"
  umount -l "$BELOW_MNT" 2>/dev/null
  BELOW=
}
trap 'left=$?; put_others_away; thaw; for loop in "${LOOPS[@]}"; do losetup -d "$loop"; done; (exit $left); put_away' EXIT
LOOPS=()
OWN_LOOPS=()  # on the array under test, lowest first

refused() {  # STATUS REGEX COMMAND...: one line on standard error, besides warnings of members that are left out
  local expected=$1 regex=$2 status=0
  shift 2
  "$@" >"$WORK/out" 2>"$WORK/err" || status=$?
  [ $status -eq "$expected" ] || die "exit status $status instead of $expected: $* ($(head -c 300 "$WORK/err"))"
  sed -i '/warning: /d' "$WORK/err"
  [ "$(wc -l <"$WORK/err")" -eq 1 ] || die "not one line but: $(cat "$WORK/err") <- $*"
  grep -Eq -- "$regex" "$WORK/err" || die "'$(cat "$WORK/err")' does not match '$regex' <- $*"
  say "  $(cat "$WORK/err")"
}
eplog() { "$EPLOG" "$@" >"$WORK/out" 2>"$WORK/err" || die "exit status $?: eplog $*: $(head -c 500 "$WORK/err")"; }
status_value() {
  { "$EPLOG" status "$ARRAY" --json 2>/dev/null || [ $? -eq 3 ]; } | python3 -c "
import json, sys
d = json.load(sys.stdin)
v = {x['name']: x for x in d['devices']}
print(($1))"
}
wait_for() {  # EXPRESSION: until it is True
  local tries
  for ((tries = 0; tries < 600; ++tries)); do
    [ "$(status_value "$1")" = True ] && return 0
    sleep 0.1
  done
  die "it does not come to that: $1; $("$EPLOG" status "$ARRAY"; "$EPLOG" events "$ARRAY" | tail -n 20)"
}
readonly WHOLE="d['array']['state'] in ('clean', 'active')"
fill() { dd if=/dev/urandom of="$MNT/disk" bs=1M count=8 conv=notrunc,fsync status=none || die "a write fails"
  sha256sum "$MNT/disk" >"$WORK/sum"; }
verify() {
  echo 3 >/proc/sys/vm/drop_caches 2>/dev/null || true
  sha256sum --check --status "$WORK/sum" || lost "the volume has changed"
}
warned() { grep -Eq "warning: $1" "$WORK/mount.err" || die "no warning '$1' but: $(cat "$WORK/mount.err")"; }
# ask REQUEST LOOKED_AT: a request to the serving process about a file that was looked at (seen PATH), and its answer.
cat >"$WORK/ask.py" <<'PYTHON'
import json, os, re, socket, sys
toml, request, looked_at = sys.argv[1:]
request = json.loads(request)
if looked_at:
    kind, device, inode = looked_at.split()
    request['identity'] = {'block': kind == 'block', 'device': int(device), 'inode': int(inode)}
uuid = re.search('uuid = "(.*)"', open(toml).read()).group(1)
where = [d + '/' + uuid + '.sock' for d in ('/run/eplog', '/tmp/eplog-%d' % os.getuid(), os.environ.get('XDG_RUNTIME_DIR', '/none') + '/eplog')]
s = socket.socket(socket.AF_UNIX)
s.connect(next(p for p in where if os.path.exists(p)))
s.sendall((json.dumps(request) + '\n').encode())
print(s.makefile().readline())
PYTHON
ask() { python3 "$WORK/ask.py" "$ARRAY/array.toml" "$1" "$2"; }
seen() {  # PATH: as the verbs see it
  python3 -c '
import os, stat, sys
s = os.stat(sys.argv[1])
print("block %d 0" % s.st_rdev if stat.S_ISBLK(s.st_mode) else "file %d %d" % (s.st_dev, s.st_ino))' "$1"
}
# no_device STATUS REGEX PATH: neither replaces ssd0 nor becomes a spare, by whatever force, and keeps its bytes.
no_device() {
  local status=$1 regex=$2 path=$3 before='' verb
  [ ! -f "$path" ] || before=$(sha256sum <"$path")
  refused "$status" "$regex" "$EPLOG" replace "$ARRAY" ssd0 "$path" --force
  refused "$status" "$regex" "$EPLOG" spare add "$ARRAY" "$path" --force
  [ -z "$DAEMON" ] || for verb in '"replace", "device": 0' '"spare-add"'; do  # whatever the verbs look at before
    ask "{\"verb\": $verb, \"path\": \"$path\"}" "$(seen "$path")" >"$WORK/answer"
    grep -q '"ok":false' "$WORK/answer" && grep -Eq "$regex" "$WORK/answer" || die "$verb, $path: $(cat "$WORK/answer")"
  done
  [ ! -f "$path" ] || [ "$(sha256sum <"$path")" = "$before" ] || die "a refusal wrote to $path"
  [ "$(status_value "v['ssd0']['state'], [x for x in v if x.startswith('spare')]")" = "('failed', [])" ] ||
    die "$("$EPLOG" status "$ARRAY")"
}
descriptors() { find "/proc/$DAEMON/fd" -type l | wc -l; }

say "== a failed member's file is deleted, and its replacement is made in the same place"
create_array --level 5 --ssds 3 --logs 1 --device-size $SSD_BYTES --log-size $LOG_BYTES
eplog volume create "$ARRAY" disk 8M
start_daemon
fill
for ((round = 0; round < 6; ++round)); do
  [ $round -ne 1 ] || before=$(descriptors)
  device=ssd$((round % 3))
  eplog fail "$ARRAY" $device
  rm "$ARRAY/$device"
  if ((round % 2)); then truncate -s $SSD_BYTES "$ARRAY/$device"; fi
  eplog replace "$ARRAY" $device "$ARRAY/$device"
  wait_for "$WHOLE"
  verify
done
for ((tries = 0; tries < 600; ++tries)); do
  deleted=$(find "/proc/$DAEMON/fd" -type l -lname '* (deleted)' -lname "$ARRAY/*" | wc -l)
  [ "$deleted" -eq 0 ] && [ "$(descriptors)" -le "$before" ] && break
  sleep 0.1
done
[ "$deleted" -eq 0 ] || die "deleted members are kept open: $(ls -l "/proc/$DAEMON/fd")"
[ "$(descriptors)" -le "$before" ] || die "descriptors: $before, and now $(ls -l "/proc/$DAEMON/fd")"
stop_daemon
check_array
for device in ssd0 ssd1 ssd2 log0; do  # each can be done without, so that all the others hold what they should
  mv "$ARRAY/$device" "$WORK/away"
  start_daemon --read-only
  verify
  stop_daemon
  mv "$WORK/away" "$ARRAY/$device"
done

say "== members' files are removed while the array is mounted, and nobody had failed them"
start_daemon
fill
are_removed() { [ "$(status_value "[n for n in v if v[n].get('file_removed')]")" = "$1" ] || die "removed are: $("$EPLOG" status "$ARRAY" --json)"; }
are_removed "[]"
ln "$ARRAY/ssd1" "$WORK/kept"
rm "$ARRAY/ssd0" "$ARRAY/ssd1"
are_removed "['ssd0']"  # the other has a name still
status=0
"$EPLOG" status "$ARRAY" >"$WORK/out" || status=$?
[ $status -eq 3 ] && grep -q 'ssd0 .*file was removed' "$WORK/out" || die "status ($status) says $(cat "$WORK/out")"
rm "$WORK/kept"  # more than parity replaces
are_removed "['ssd0', 'ssd1']"
"$EPLOG" scrub "$ARRAY" >/dev/null 2>"$WORK/err" || die "scrub: $(cat "$WORK/err")"
grep -q 'warning: the files of ssd0, ssd1 were removed' "$WORK/err" || die "scrub says $(cat "$WORK/err")"
refused 1 'stays mounted.*ssd0, ssd1.*fail, replace and rebuild' "$EPLOG" umount "$MNT"
"$EPLOG" fail "$ARRAY" ssd0 --dry-run >/dev/null 2>"$WORK/err" || die "fail --dry-run: $(cat "$WORK/err")"
grep -q 'warning: the files of ssd0, ssd1 were removed' "$WORK/err" || die "fail --dry-run says $(cat "$WORK/err")"
for device in ssd0 ssd1; do
  "$EPLOG" fail "$ARRAY" $device >/dev/null 2>"$WORK/err" || die "fail: $(cat "$WORK/err")"
  [ $device != ssd0 ] || grep -q 'warning: the files of ssd1 were removed' "$WORK/err" || die "fail says $(cat "$WORK/err")"
  eplog replace "$ARRAY" $device "$ARRAY/$device"
  wait_for "$WHOLE"
done
are_removed "[]"
verify
rm "$ARRAY/log0"
bounded 120 "$EPLOG" umount "$MNT" >/dev/null 2>"$WORK/err" || die "umount: $(cat "$WORK/err")"
DAEMON=
grep -q 'warning: the files of log0 were removed' "$WORK/err" || die "umount says $(cat "$WORK/err")"
start_daemon
warned 'log0 is missing'
verify
eplog replace "$ARRAY" log0 "$ARRAY/log0"
wait_for "$WHOLE"
stop_daemon
check_array

say "== an array that can only be read is unmounted, whatever was removed"
cp -a "$ARRAY" "$WORK/copy"
bounded 120 "$EPLOG" mount "$WORK/copy" "$MNT" --read-only >/dev/null
rm "$WORK/copy/ssd0" "$WORK/copy/ssd1"
bounded 120 "$EPLOG" umount "$MNT" >/dev/null 2>"$WORK/err" || die "umount: $(cat "$WORK/err")"
grep -q 'warning: the files of ssd0, ssd1 were removed' "$WORK/err" || die "umount says $(cat "$WORK/err")"
rm -r "$WORK/copy"

say "== and one that is not wanted any more, by force"
cp -a "$ARRAY" "$WORK/copy"
bounded 120 "$EPLOG" mount "$WORK/copy" "$MNT" >/dev/null
rm -r "$WORK/copy"
refused 1 'stays mounted.*umount --force' "$EPLOG" umount "$MNT"
bounded 120 "$EPLOG" umount --force "$MNT" >/dev/null

say "== a blank disk in a dead one's slot, and whatever else is no good member"
rm "$ARRAY/ssd1" && truncate -s $SSD_BYTES "$ARRAY/ssd1"
start_daemon
warned "ssd1 \($ARRAY/ssd1\) is no member and left out"
[ "$(status_value "d['array']['state'], v['ssd1']['state'], v['ssd1']['path']")" = \
  "('degraded', 'missing', '$ARRAY/ssd1')" ] || die "$("$EPLOG" status "$ARRAY")"
verify
fill
cmp -s <(head -c $SSD_BYTES /dev/zero) "$ARRAY/ssd1" || die "it was written to while it was out"
eplog replace "$ARRAY" ssd1 "$ARRAY/ssd1"
wait_for "$WHOLE"
stop_daemon
check_array
rm "$ARRAY/ssd2" && truncate -s $SSD_BYTES "$ARRAY/ssd2"
"$EPLOG" check "$ARRAY" >"$WORK/out" 2>"$WORK/err"
[ $? -eq 3 ] || die "check: $(cat "$WORK/out" "$WORK/err")"
refused 2 'ssd2 is lost already' "$EPLOG" fail "$ARRAY" ssd2
eplog replace "$ARRAY" ssd2 "$ARRAY/ssd2"  # not mounted
eplog rebuild "$ARRAY"
check_array
start_daemon --without ssd0
warned "ssd0 .* is left out, as told"
verify
fill
stop_daemon
start_daemon
wait_for "$WHOLE"
verify
stop_daemon
check_array
mv "$ARRAY/ssd0" "$ARRAY/x" && mv "$ARRAY/ssd1" "$ARRAY/ssd0" && mv "$ARRAY/x" "$ARRAY/ssd1"
(cd "$WORK" && "$EPLOG" mount array "$MNT" --read-only --without array/ssd1 >"$WORK/out" 2>&1) || die "$(cat "$WORK/out")"
[ "$(status_value "v['ssd0']['state'], v['ssd1']['state']")" = "('missing', 'ok')" ] || die "by path: $("$EPLOG" status "$ARRAY")"
verify
eplog umount "$MNT"
start_daemon --read-only --without ssd1
[ "$(status_value "v['ssd0']['state'], v['ssd1']['state']")" = "('ok', 'missing')" ] || die "by name: $("$EPLOG" status "$ARRAY")"
verify
stop_daemon
mv "$ARRAY/ssd0" "$ARRAY/x" && mv "$ARRAY/ssd1" "$ARRAY/ssd0" && mv "$ARRAY/x" "$ARRAY/ssd1"
truncate -s 0 "$ARRAY/log0"
start_daemon --read-only --force
warned "log0 .* is no member and left out"
verify
stop_daemon
rm "$ARRAY/ssd0" && truncate -s $SSD_BYTES "$ARRAY/ssd0"
refused 1 'more than 1 members are missing: ssd0, log0.*ssd0 .* is no member' "$EPLOG" mount "$ARRAY" "$MNT"
rm -r "$ARRAY"

say "== who waits for a rebuild is told when it will not come"
create_array --level 5 --ssds 3 --logs 1 --device-size $SSD_BYTES --log-size $LOG_BYTES
eplog volume create "$ARRAY" disk 8M
start_daemon
fill
stop_daemon
eplog fail "$ARRAY" ssd0
eplog replace "$ARRAY" ssd0 "$ARRAY/ssd0" --force
start_daemon --read-only
[ "$(status_value "v['ssd0']['state']")" = rebuilding ] || die "$("$EPLOG" status "$ARRAY")"
refused 1 'nothing is rebuilt: .*mounted read-only' bounded 60 "$EPLOG" rebuild "$ARRAY"
verify
stop_daemon
eplog rebuild "$ARRAY"
check_array
start_daemon
eplog rebuild "$ARRAY" --pace 16K  # of what is to come
eplog fail "$ARRAY" ssd0
eplog replace "$ARRAY" ssd0 "$WORK/new" --make-file
eplog inject "$ARRAY" ssd1 --drop
eplog inject "$ARRAY" ssd2 --drop
dd if=/dev/urandom of="$MNT/disk" bs=1M count=1 conv=notrunc,fsync status=none 2>/dev/null && die "a write without two SSDs"
[ "$(status_value "v['ssd0']['state']")" = rebuilding ] || die "$("$EPLOG" status "$ARRAY")"
refused 1 'nothing is rebuilt: the array has stopped: more than 1 devices are lost' bounded 60 "$EPLOG" rebuild "$ARRAY"
kill_daemon
rm -r "$ARRAY" "$WORK/new"

say "== typing errors make no files, and refusals leave none"
create_array --level 5 --ssds 3 --logs 1 --device-size $SSD_BYTES --log-size $LOG_BYTES
eplog volume create "$ARRAY" disk 8M
refused 1 'there is no /dev/loop-none, and files are not made in /dev' "$EPLOG" replace "$ARRAY" ssd1 /dev/loop-none --make-file
refused 1 'there is no /dev/loop-none, and files are not made in /dev' "$EPLOG" spare add "$ARRAY" /dev/loop-none
refused 1 "there is no $WORK/new; --make-file" "$EPLOG" replace "$ARRAY" ssd1 "$WORK/new"
refused 1 "there is no $WORK/new; --make-file" "$EPLOG" spare add "$ARRAY" "$WORK/new"
refused 2 'ssd1 is part of the array: fail it first' "$EPLOG" replace "$ARRAY" ssd1 "$WORK/new" --make-file
[ ! -e "$WORK/new" ] && [ ! -e /dev/loop-none ] || die "a refusal left a file"
truncate -s $SSD_BYTES "$WORK/b0" "$WORK/b1" "$WORK/b2"
refused 2 '--logs is missing' "$EPLOG" create "$WORK/other.toml" --level 5 --ssds "$WORK/b0,$WORK/b1,$WORK/b2"
[ ! -e "$WORK/log0" ] || die "a log device was made beside the toml"
eplog fail "$ARRAY" ssd0
rm "$ARRAY/ssd0"
refused 1 "is where ssd0 of .array. is, or was: 'eplog replace" "$EPLOG" spare add "$ARRAY" "$ARRAY/ssd0"
[ ! -e "$ARRAY/ssd0" ] || die "a refusal left a file"
eplog replace "$ARRAY" ssd0 "$WORK/new" --make-file
eplog rebuild "$ARRAY"
check_array
start_daemon
fill
cp -r "$ARRAY" "$WORK/copy"
refused 1 'process [0-9]+ serves .*/array/array.toml, which has the UUID of .*/copy .*one is a copy' "$EPLOG" mount "$WORK/copy" "$WORK/copy.mnt"
stop_daemon
rm -r "$WORK/copy" "$ARRAY" "$WORK/new"

say "== what took the name of what was looked at is not overwritten"
create_array --level 5 --ssds 3 --logs 1 --device-size $SSD_BYTES --log-size $LOG_BYTES
eplog volume create "$ARRAY" disk 8M
start_daemon
fill
eplog fail "$ARRAY" ssd0
head -c $SSD_BYTES /dev/urandom >"$WORK/precious"
cp "$WORK/precious" "$WORK/copy"
truncate -s $SSD_BYTES "$ARRAY/new"
NEW=$(seen "$ARRAY/new")
mv "$ARRAY/new" "$ARRAY/away"
mv "$WORK/precious" "$ARRAY/new"
for verb in '"replace", "device": 0' '"spare-add"'; do
  ask "{\"verb\": $verb, \"path\": \"$ARRAY/new\"}" "$NEW" >"$WORK/answer"
  grep -q '"ok":false' "$WORK/answer" && grep -q "$ARRAY/new is not the device that was looked at" "$WORK/answer" ||
    die "$verb: $(cat "$WORK/answer")"
  ask "{\"verb\": $verb, \"path\": \"$ARRAY/new\"}" "" >"$WORK/answer"
  grep -q '"ok":false.*lacks the identity' "$WORK/answer" || die "$verb: $(cat "$WORK/answer")"
done
cmp "$WORK/copy" "$ARRAY/new" || die "a refusal wrote"
[ "$(status_value "v['ssd0']['state']")" = failed ] || die "$("$EPLOG" status "$ARRAY")"
mv "$ARRAY/away" "$ARRAY/new"
ask "{\"verb\": \"replace\", \"device\": 0, \"path\": \"$ARRAY/new\"}" "$NEW" >"$WORK/answer"
grep -q '"ok":true' "$WORK/answer" || die "$(cat "$WORK/answer")"
wait_for "$WHOLE"
verify
stop_daemon
# Who asked said no more, like a verb that is killed: it is written down where it is.
start_daemon
[ "$(status_value "v['ssd0']['path'], $WHOLE")" = "('$ARRAY/new', True)" ] || die "$("$EPLOG" status "$ARRAY")"
verify
stop_daemon
rm -r "$ARRAY" "$WORK/copy"

say "== not mounted, it is written down before anybody else can open the array"
create_array --level 5 --ssds 3 --logs 1 --device-size $SSD_BYTES --log-size $LOG_BYTES
eplog fail "$ARRAY" ssd0
truncate -s $SSD_BYTES "$ARRAY/new"
exec {writing}<"$ARRAY"
flock $writing
"$EPLOG" replace "$ARRAY" ssd0 "$ARRAY/new" >"$WORK/replaced" 2>&1 {writing}<&- &
replacing=$!
for ((tries = 0; tries < 600; ++tries)); do
  grep -Eq -- "-> FLOCK .* $replacing " /proc/locks && break
  alive $replacing || die "it has not waited for its turn at array.toml: $(cat "$WORK/replaced")"
  sleep 0.02
done
for member in ssd1 ssd2 log0 new; do
  ! flock -n "$ARRAY/$member" true || die "$member was let go before array.toml says what it is"
done
exec {writing}<&-
wait $replacing || die "$(cat "$WORK/replaced")"
grep -q '^path = "new"' "$ARRAY/array.toml" || die "$(cat "$ARRAY/array.toml")"
mv "$ARRAY/array.toml" "$WORK/real.toml"
ln -s "$WORK/real.toml" "$ARRAY/array.toml"
eplog fail "$ARRAY" ssd0
truncate -s $SSD_BYTES "$ARRAY/newer"
eplog replace "$ARRAY" ssd0 "$ARRAY/newer"
[ -L "$ARRAY/array.toml" ] && grep -q '^path = "newer"' "$WORK/real.toml" || die "a link: $(cat "$WORK/real.toml")"
rm -r "$ARRAY" "$WORK/real.toml"

say "== what cannot be a device"
create_array --level 5 --ssds 3 --logs 1 --device-size $SSD_BYTES --log-size $LOG_BYTES
eplog volume create "$ARRAY" disk 8M
"$EPLOG" create "$WORK/other" --level 5 --ssds 3 --logs 1 --device-size $SSD_BYTES --log-size $LOG_BYTES >/dev/null || die "create"
eplog fail "$ARRAY" ssd0
mkfifo "$WORK/pipe"
echo mark >"$ARRAY/scrub.json"
ln "$ARRAY/ssd1" "$WORK/hard"
ln -s "$ARRAY/log0" "$WORK/soft"
ln "$ARRAY/array.toml" "$WORK/hard.toml"
ln -s "$ARRAY/events.jsonl" "$WORK/soft.jsonl"
no_devices() {
  local path
  for path in /dev/null /dev/zero /dev/full /dev/tty "$WORK" "$WORK/pipe"; do
    no_device 2 'is neither a (regular )?file nor a block device' "$path"
  done
  no_device 2 "is array.toml of 'array' itself" "$ARRAY/array.toml"
  no_device 2 "is array.toml of 'array' itself" "$WORK/hard.toml"
  no_device 2 "is events.jsonl of 'array' itself" "$WORK/soft.jsonl"
  no_device 2 "is scrub.json of 'array' itself" "$ARRAY/scrub.json"
}
no_devices
for member in hard soft; do
  refused 2 'is part of this array' "$EPLOG" replace "$ARRAY" ssd0 "$WORK/$member" --force
  refused 1 'is (ssd1|log0) of this array' "$EPLOG" spare add "$ARRAY" "$WORK/$member" --force
done
check_array_state() { "$EPLOG" check "$ARRAY" >"$WORK/out" 2>&1 || [ $? -eq 3 ] || lost "check: $(cat "$WORK/out")"; }
check_array_state
bounded 120 "$EPLOG" mount "$WORK/other" "$WORK/other.mnt" >/dev/null || die "mount"
start_daemon
fill
no_devices
no_device 2 'is neither a (regular )?file nor a block device' "$(python3 - "$ARRAY/array.toml" <<'PYTHON'
import os, re, sys
uuid = re.search('uuid = "(.*)"', open(sys.argv[1]).read()).group(1)
where = [d + '/' + uuid + '.sock' for d in ('/run/eplog', '/tmp/eplog-%d' % os.getuid(), os.environ.get('XDG_RUNTIME_DIR', '/none') + '/eplog')]
print(next(p for p in where if os.path.exists(p)))
PYTHON
)"
no_device 1 "bears the name of ssd2 of the EPLOG array 'other', which is in use by process" "$WORK/other/ssd2"
for member in hard soft; do
  refused 2 'is part of this array' "$EPLOG" replace "$ARRAY" ssd0 "$WORK/$member" --force
  refused 1 'is (ssd1|log0) of this array' "$EPLOG" spare add "$ARRAY" "$WORK/$member" --force
done
verify
stop_daemon
eplog umount "$WORK/other.mnt"
check_array_state
rm -r "$ARRAY" "$WORK/other" "$WORK/pipe" "$WORK"/hard* "$WORK"/soft*

say "== what lies on the array itself"
create_array --level 5 --ssds 3 --logs 1 --device-size $((3 * SSD_BYTES)) --log-size $LOG_BYTES
eplog volume create "$ARRAY" disk 8M
start_daemon --io-deadline 5s
fill
eplog fail "$ARRAY" ssd0
truncate -s $((3 * SSD_BYTES)) "$MNT/self"
truncate -s $((4 * SSD_BYTES)) "$MNT/below"
no_device 2 "self lies on 'array' itself, and the array would wait" "$MNT/self"
refused 2 "mnt lies on 'array' itself" "$EPLOG" replace "$ARRAY" ssd0 "$MNT/made" --make-file
refused 2 "mnt lies on 'array' itself" "$EPLOG" spare add "$ARRAY" "$MNT/made" --make-file
[ ! -e "$MNT/made" ] || die "a refusal left a volume"
attach() { OWN_LOOPS+=("$(losetup --show -f "$1")") && [ -n "${OWN_LOOPS[-1]}" ] || die "losetup"; }
detach() {
  losetup -d "${OWN_LOOPS[-1]}" || die "losetup -d"
  unset "OWN_LOOPS[-1]"
}
own_loops() {
  attach "$MNT/self"
  no_device 2 "lies on 'array' itself \(through ${OWN_LOOPS[0]#/dev/}\)" "${OWN_LOOPS[0]}"
  detach
  attach "$MNT/below"
  mkfs.ext4 -q -F "${OWN_LOOPS[0]}" && mount "${OWN_LOOPS[0]}" "$FS" || die "a file system on a volume"
  truncate -s $((3 * SSD_BYTES)) "$FS/file"
  no_device 2 "lies on 'array' itself \(through ${OWN_LOOPS[0]#/dev/}\)" "$FS/file"
  attach "$FS/file"
  no_device 2 "lies on 'array' itself \(through ${OWN_LOOPS[1]#/dev/} on ${OWN_LOOPS[0]#/dev/}\)" "${OWN_LOOPS[1]}"
  detach
  bounded 600 umount "$FS" || die "umount"
  detach
}
if losetup -f >/dev/null 2>&1 && command -v mkfs.ext4 >/dev/null; then own_loops; else say "SKIPPED: loop devices on the array itself: there are none, or no mkfs.ext4"; fi
# A circle of two arrays.
truncate -s $SSD_BYTES "$MNT/member"
mkdir "$WORK/other"
truncate -s $((8 * SSD_BYTES)) "$WORK/other/ssd1" "$WORK/other/ssd2"
truncate -s $LOG_BYTES "$WORK/other/log0"
"$EPLOG" create "$WORK/other" --level 5 --ssds "$MNT/member,$WORK/other/ssd1,$WORK/other/ssd2" --logs "$WORK/other/log0" >/dev/null || die "create"
bounded 120 "$EPLOG" mount "$WORK/other" "$WORK/other.mnt" >/dev/null || die "mount"
truncate -s $((3 * SSD_BYTES)) "$WORK/other.mnt/round"
no_device 2 "lies on 'array' itself \(through array $WORK/other\)" "$WORK/other.mnt/round"
eplog umount "$WORK/other.mnt"
verify
truncate -s $((3 * SSD_BYTES)) "$ARRAY/new"
eplog replace "$ARRAY" ssd0 "$ARRAY/new"
wait_for "$WHOLE"
verify
stop_daemon
check_array
rm -r "$ARRAY" "$WORK/other"

swap_disks() {
  say "== a link that leads to another disk"
  local i
  mkdir "$WORK/disks" "$WORK/by-path"
  for i in 0 1 2 3 4; do
    truncate -s $SSD_BYTES "$WORK/disks/$i"
    LOOPS+=("$(losetup --show -f "$WORK/disks/$i")") || die "losetup"
    ln -s "${LOOPS[$i]}" "$WORK/by-path/$i"
  done
  "$EPLOG" create "$ARRAY" --level 5 --ssds "$WORK/by-path/0,$WORK/by-path/1,$WORK/by-path/2" \
    --logs "$WORK/by-path/3" >/dev/null || die "create"
  eplog volume create "$ARRAY" disk 8M
  start_daemon
  fill
  eplog fail "$ARRAY" ssd0
  ln -sfn "${LOOPS[4]}" "$WORK/by-path/0"  # the new disk in the slot of the old one
  eplog replace "$ARRAY" ssd0 "$WORK/by-path/0"
  wait_for "$WHOLE"
  verify
  cmp -s <(head -c $SSD_BYTES /dev/zero) "$WORK/disks/4" && lost "nothing was written to the new disk"
  stop_daemon
  dd if=/dev/zero of="${LOOPS[0]}" bs=1M count=4 status=none  # the old one is not needed
  check_array
  rm -r "$ARRAY"
}
if losetup -f >/dev/null 2>&1; then swap_disks; else say "SKIPPED: a link that leads to another disk: no loop devices"; fi

say "== devices that hang: when they are opened, when they are read, as spares"
"$EPLOG" create "$WORK/below" --level 5 --ssds 3 --logs 1 --device-size 96M --log-size 48M >/dev/null || die "create"
bounded 120 "$EPLOG" mount "$WORK/below" "$BELOW_MNT" >/dev/null || die "mount of the array below"
BELOW=$("$EPLOG" status "$WORK/below" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["array"]["pid"])')
truncate -s $SSD_BYTES "$BELOW_MNT/ssd0" "$BELOW_MNT/spare" "$BELOW_MNT/new"
mkdir "$ARRAY"
truncate -s $SSD_BYTES "$ARRAY/ssd1" "$ARRAY/ssd2"
truncate -s $LOG_BYTES "$ARRAY/log0"
"$EPLOG" create "$ARRAY" --level 5 --ssds "$BELOW_MNT/ssd0,$ARRAY/ssd1,$ARRAY/ssd2" --logs "$ARRAY/log0" >/dev/null || die "create"
eplog volume create "$ARRAY" disk 8M
start_daemon
fill
stop_daemon
NEW=$(seen "$BELOW_MNT/new")
HANGING=
if losetup -f >/dev/null 2>&1; then  # can be opened, and not be read
  truncate -s $SSD_BYTES "$BELOW_MNT/disk"
  HANGING=$(losetup --show -f "$BELOW_MNT/disk") || die "losetup"
  LOOPS+=("$HANGING")
  blockdev --flushbufs "$HANGING"
fi
kill -STOP "$BELOW"
if [ -n "$HANGING" ]; then
  "$EPLOG" inspect "$HANGING" >"$WORK/inspect.out" 2>&1 &  # the kernel may keep the process for as long as its read
  INSPECTING=$!
  for ((tries = 0; tries < 1200; ++tries)); do
    grep -q "$HANGING does not answer" "$WORK/inspect.out" 2>/dev/null && break
    sleep 0.1
  done
  grep -q "$HANGING does not answer" "$WORK/inspect.out" || die "inspect of a disk that hangs says nothing"
else
  say "SKIPPED: inspect of a disk that hangs: no loop devices"
fi
start_daemon --io-deadline 2s || die "a first member that hangs: $(cat "$WORK/mount.err")"
warned 'ssd0 is missing: .*does not answer'
verify
fill
# Opened by the serving process itself, while everything else goes on.
ask "{\"verb\": \"replace\", \"device\": 0, \"path\": \"$BELOW_MNT/new\"}" "$NEW" >"$WORK/replaced" &
asking=$!
sleep 1
fill
alive $asking || die "the replacement that hangs was answered before anything else: $(cat "$WORK/replaced")"
wait $asking || die "no answer about the replacement that hangs"
grep -q '"ok":false.*does not answer' "$WORK/replaced" || die "$(cat "$WORK/replaced")"
verify
bounded 120 "$EPLOG" umount "$MNT" >/dev/null || die "umount beside a member that hangs"
DAEMON=
kill -CONT "$BELOW"
if [ -n "$HANGING" ]; then
  wait $INSPECTING
  [ $? -eq 1 ] && [ "$(wc -l <"$WORK/inspect.out")" -eq 1 ] || die "inspect: $(cat "$WORK/inspect.out")"
fi
start_daemon --io-deadline 2s
wait_for "$WHOLE"
eplog spare add "$ARRAY" "$BELOW_MNT/spare"
kill -STOP "$BELOW"  # ssd0 and the spare hang from now on
fill
wait_for "v['ssd0']['state'] == 'failed'"
verify
bounded 180 "$EPLOG" umount "$MNT" >/dev/null || die "umount beside a spare that hangs"
DAEMON=
start_daemon --io-deadline 2s
warned 'ssd0 is missing: .*does not answer'
verify
kill -TERM "$DAEMON"
for ((tries = 0; tries < 1800; ++tries)); do
  mountpoint -q "$MNT" || break
  sleep 0.1
done
mountpoint -q "$MNT" && die "SIGTERM beside a spare that hangs"
DAEMON=
kill -CONT "$BELOW"
say "passed in $(elapsed) s"
