#!/usr/bin/env bash
# Which array a command acts on, and where its members are: copies of a served array, an array.toml that is gone or
# garbled while the array is served, members that changed places, and what a mount by force says of itself.
#
#   places_test.sh PATH-TO-EPLOG
source "$(dirname "$0")/lib.sh" "$1"

need_fuse
need_programs python3 sha256sum dd
make_work
readonly SSD_BYTES=$((24 << 20)) LOG_BYTES=$((12 << 20))
COPY=$WORK/copy
mounted() { grep -q " $1 .* fuse.eplog " /proc/self/mountinfo; }  # or a dead mount is
tidy() {
  local at
  while mountpoint -q "$MNT" && ! mounted "$MNT"; do umount -l "$MNT" || break; done
  for at in "$COPY.mnt" "$WORK/m2" "$WORK/moved-mnt"; do
    "$EPLOG" umount "$at" || umount -l "$at"
  done >/dev/null 2>&1
  umount -l "$WORK/toml.d" "$WORK/ro" 2>/dev/null
  ! mountpoint -q "$WORK" || umount -l "$WORK"
}
trap 'left=$?; tidy; (exit $left); put_away' EXIT

eplog() { "$EPLOG" "$@" >"$WORK/out" 2>"$WORK/err" || die "exit status $?: eplog $*: $(head -c 500 "$WORK/err")"; }
refused() {  # REGEX COMMAND...
  local regex=$1
  shift
  "$@" >"$WORK/out" 2>"$WORK/err" && die "not refused: $*: $(cat "$WORK/out")"
  tail -n 1 "$WORK/err" | grep -Eq -- "$regex" || die "'$(cat "$WORK/err")' does not match '$regex' <- $*"
  say "  $(tail -n 1 "$WORK/err")"
}
warned() { grep -Eq -- "$1" "$WORK/err" || die "'$(cat "$WORK/err")' does not match '$1'"; say "  $(cat "$WORK/err")"; }
states() {  # ARRAY: the names of those that are not ok
  { "$EPLOG" status "$1" --json 2>/dev/null || [ $? -eq 3 ]; } | python3 -c "
import json, sys
print(','.join(d['name'] for d in json.load(sys.stdin)['devices'] if d['state'] != 'ok') or 'none')"
}
places() { sed -n 's/^path = "\(.*\)"/\1/p' "$ARRAY/array.toml" | paste -sd ,; }
volumes() { "$EPLOG" volume list "$1" | sed 1d | awk '{print $1}' | paste -sd ,; }
fill() { dd if=/dev/urandom of="$MNT/disk" bs=1M count=8 conv=notrunc,fsync status=none || die "a write fails"
  sha256sum "$MNT/disk" >"$WORK/sum"; }
verify() {
  echo 3 >/proc/sys/vm/drop_caches 2>/dev/null || true
  sha256sum --quiet -c "$WORK/sum" || lost "what was written is not there"
}
make_array() {
  create_array --level 5 --ssds 3 --logs 1 --device-size $SSD_BYTES --log-size $LOG_BYTES
  eplog volume create "$ARRAY" disk 8M
}

# Which may be read. Whether it is one, or the same devices by other nodes, nothing tells.
say "== a copy of a served array is another array, and not written to meanwhile"
make_array
start_daemon
fill
cp -r "$ARRAY" "$COPY"
for verb in "volume create $COPY only-there 1M" "fail $COPY ssd1" "volume delete $COPY disk" "commit $COPY"; do
  # shellcheck disable=SC2086
  refused "an array with the UUID of $COPY is in use by process [0-9]+ .*one is a copy of the other" "$EPLOG" $verb
done
[ "$(volumes "$ARRAY")" = disk ] || die "the original has $(volumes "$ARRAY")"
[ "$(volumes "$COPY")" = disk ] || die "the copy has $(volumes "$COPY")"
[ "$(states "$ARRAY")" = none ] || die "failing ssd1 of the copy failed that of the original"
[ -e "$MNT/disk" ] || die "deleting a volume of the copy deleted that of the original"
refused 'is not mounted' "$EPLOG" umount "$COPY"
refused "process [0-9]+ serves $ARRAY/array.toml, which has the UUID of $COPY .*one is a copy" "$EPLOG" mount "$COPY" "$COPY.mnt"
mountpoint -q "$MNT" || die "umount of the copy unmounted the original"
verify

say "== the same devices by other paths are the same array"
mkdir "$WORK/links"
for file in "$ARRAY"/*; do ln -s "$file" "$WORK/links/"; done
rm "$WORK/links/array.toml"
cp "$ARRAY/array.toml" "$WORK/links/array.toml"
[ "$(states "$WORK/links")" = none ] || die "links: $(states "$WORK/links")"
refused "mounted at $MNT by process" "$EPLOG" check "$WORK/links"
refused "mounted already, at $MNT by process" "$EPLOG" mount "$WORK/links" "$COPY.mnt"

say "== what was put in the place of a served array is another one, under its own path too"
mv "$ARRAY" "$WORK/moved"
cp -r "$COPY" "$ARRAY"
refused "in use by process [0-9]+ .*one is a copy of the other" "$EPLOG" volume create "$ARRAY" put-there 1M
[ ! -e "$MNT/put-there" ] || die "a verb for what was put there acted on what is served"
rm -r "$ARRAY"
mv "$WORK/moved" "$ARRAY"
verify

say "== array.toml is gone, or garbled, while the array is served"
cp "$ARRAY/array.toml" "$WORK/toml"
rm "$ARRAY/array.toml"
eplog status "$ARRAY"
warned "array.toml is gone; going by process [0-9]+"
eplog fail "$ARRAY" ssd1
echo 'garbled [[[' >"$ARRAY/array.toml"
eplog volume create "$ARRAY" meanwhile 1M
warned "array.toml:1: .*; going by process [0-9]+"
refused 'array.toml:1: .*; mend it, or move it away' "$EPLOG" replace "$ARRAY" ssd1 "$ARRAY/new"
[ ! -e "$ARRAY/new" ] || die "a refusal left a file"
rm "$ARRAY/array.toml"
eplog replace "$ARRAY" ssd1 "$ARRAY/new"
[ "$(places)" = ssd0,new,ssd2,log0 ] || die "array.toml was written anew with $(places)"
eplog rebuild "$ARRAY"
rm "$ARRAY/array.toml"
eplog umount "$ARRAY"
DAEMON=
refused 'there is no .*array.toml' "$EPLOG" status "$ARRAY"
sed 's/"ssd1"$/&/; s/path = "ssd1"/path = "new"/' "$WORK/toml" >"$ARRAY/array.toml"
start_daemon
verify
stop_daemon
check_array
rm -r "$ARRAY" "$COPY" "$WORK/links"

say "== array.toml cannot be written: nothing is replaced"
if [ "$(id -u)" -eq 0 ] && mkdir "$WORK/ro" && mount -t tmpfs -o size=200M none "$WORK/ro" 2>/dev/null; then
  "$EPLOG" create "$WORK/ro" --level 5 --ssds 3 --logs 1 --device-size $SSD_BYTES --log-size $LOG_BYTES >/dev/null
  eplog fail "$WORK/ro" ssd1
  truncate -s $SSD_BYTES "$WORK/new"
  mkdir "$WORK/toml.d"
  sed "s|^path = \"|&$WORK/ro/|" "$WORK/ro/array.toml" >"$WORK/toml.d/array.toml"
  mount --bind "$WORK/toml.d" "$WORK/toml.d" && mount -o remount,ro,bind "$WORK/toml.d"
  refused 'cannot create .*array.toml' "$EPLOG" replace "$WORK/toml.d" ssd1 "$WORK/new" --force
  refused 'cannot create .*array.toml' "$EPLOG" replace "$WORK/toml.d" ssd1 "$WORK/new" --force --dry-run
  cmp -n $SSD_BYTES "$WORK/new" /dev/zero || die "a refusal wrote"
  umount "$WORK/toml.d" "$WORK/ro"
  rm "$WORK/new"
else
  say "  not looked at: needs root and tmpfs"
fi

say "== members on a read-only file system: they are not missing, and can be read"
if [ "$(id -u)" -eq 0 ] && mkdir "$WORK/low" && mount -t tmpfs -o size=200M none "$WORK/low" 2>/dev/null; then
  create_array --level 5 --ssds 4 --logs 1 --device-size $SSD_BYTES --log-size $LOG_BYTES
  for name in ssd1 ssd2 ssd3; do  # not all of them: others can be opened
    mv "$ARRAY/$name" "$WORK/low/$name" && sed -i "s|path = \"$name\"|path = \"$WORK/low/$name\"|" "$ARRAY/array.toml"
  done
  mount -o remount,ro "$WORK/low"
  reads="lie on a read-only file system: make it writable, or only read: eplog mount $ARRAY DIR --read-only \(ssd1 cannot be written: .*ssd3 cannot be written"
  refused "$reads" "$EPLOG" mount "$ARRAY" "$MNT"
  refused "$reads" "$EPLOG" commit "$ARRAY"
  start_daemon --read-only
  stop_daemon
  umount "$WORK/low"
  rm -r "$ARRAY"
else
  say "  not looked at: needs root and tmpfs"
fi

say "== members that changed places: array.toml says where they are once the array was opened"
make_array
start_daemon
fill
stop_daemon
mv "$ARRAY/ssd0" "$ARRAY/x" && mv "$ARRAY/ssd1" "$ARRAY/ssd0" && mv "$ARRAY/ssd2" "$ARRAY/ssd1" && mv "$ARRAY/x" "$ARRAY/ssd2"
eplog fail "$ARRAY" "$ARRAY/ssd0" --dry-run
grep -q ssd1 "$WORK/out" || die "the member at ssd0 is ssd1: $(cat "$WORK/out")"
"$EPLOG" mount "$ARRAY" "$MNT" >"$WORK/out" 2>"$WORK/err" || die "$(cat "$WORK/err")"
warned "members are not where $ARRAY/array.toml said"
DAEMON=$("$EPLOG" status "$ARRAY" --json | sed -n 's/.*"pid": \([0-9]*\).*/\1/p')
[ "$(places)" = ssd2,ssd0,ssd1,log0 ] || die "array.toml says $(places)"
eplog fail "$ARRAY" ssd0
eplog replace "$ARRAY" ssd0 "$ARRAY/new"
eplog rebuild "$ARRAY"
[ "$(places)" = new,ssd0,ssd1,log0 ] || die "after a replacement array.toml says $(places)"
stop_daemon
mv "$ARRAY/ssd2" "$WORK/out-of-it"
start_daemon
[ "$(states "$ARRAY")" = none ] || die "a healthy member was lost: $(states "$ARRAY")"
verify
stop_daemon
check_array

say "== one took the place of another, which is gone"
mv "$ARRAY/ssd0" "$ARRAY/ssd1"
start_daemon
[ "$(places)" = new,ssd1,ssd0,log0 ] || die "array.toml says $(places)"
verify
stop_daemon
rm -r "$ARRAY"

say "== a mount by force says that it may be old"
make_array
start_daemon
fill
kill_daemon
rm "$ARRAY/log0" "$ARRAY/ssd1"
refused 'are missing' "$EPLOG" mount "$ARRAY" "$MNT"
eplog mount "$ARRAY" "$MNT" --read-only --force
warned 'what was written last may read as its older content|cannot be read; .eplog status .* --lost. lists it'
eplog umount "$MNT"
rm -r "$ARRAY"

say "== a copy that shares one device neither drives the original nor is it"
make_array
mv "$ARRAY/log0" "$WORK/shared-log"
sed -i "s|path = \"log0\"|path = \"$WORK/shared-log\"|" "$ARRAY/array.toml"
eplog volume create "$ARRAY" precious 1M
cp -a "$ARRAY" "$COPY"
start_daemon
SHARED="process [0-9]+ serves $ARRAY/array.toml, to which log0 of $COPY belongs, and not ssd0, ssd1, ssd2"
refused "$SHARED.*eplog umount $MNT" "$EPLOG" volume delete "$COPY" precious
[ "$(volumes "$ARRAY")" = disk,precious ] || die "deleting a volume of the copy left the original with $(volumes "$ARRAY")"
refused "$SHARED" "$EPLOG" status "$COPY"
refused "$SHARED" "$EPLOG" umount "$COPY"
mountpoint -q "$MNT" || die "umount of the copy unmounted the original"
refused "held by process|in use|one is a copy" "$EPLOG" check "$COPY"
refused "one is a copy" "$EPLOG" mount "$COPY" "$COPY.mnt"
stop_daemon
rm -r "$ARRAY" "$COPY" "$WORK/shared-log"

say "== who serves an array serves it also when all its devices are lost"
make_array
start_daemon
fill
for name in ssd0 ssd1 ssd2 log0; do eplog inject "$ARRAY" "$name" --drop; done
dd if=/dev/urandom of="$MNT/disk" bs=1M count=8 conv=notrunc,fsync status=none 2>"$WORK/err" && die "nothing failed"
for ((at = 0; at < 2048; at += 8)); do
  dd if="$MNT/disk" of=/dev/null bs=4k count=1 skip=$at iflag=direct status=none 2>/dev/null || true
done
[ "$(states "$ARRAY")" = ssd0,ssd1,ssd2,log0 ] || die "still held: all but $(states "$ARRAY")"
PID=$DAEMON
"$EPLOG" status "$ARRAY" --json >"$WORK/out" 2>"$WORK/err" || [ $? -eq 3 ] || die "status: $(cat "$WORK/err")"
grep -Eq "\"pid\": *$PID" "$WORK/out" || die "status does not ask who serves: $(cat "$WORK/out")"
"$EPLOG" commit "$ARRAY" >"$WORK/out" 2>"$WORK/err" && die "an array without devices commits"
refused "mounted already, at $MNT by process $PID" "$EPLOG" mount "$ARRAY" "$COPY.mnt"
"$EPLOG" umount "$MNT" >"$WORK/out" 2>"$WORK/err" && die "nothing could be written, and umount says: $(cat "$WORK/out")"
say "  $(cat "$WORK/err")"
DAEMON=
rm -r "$ARRAY"

say "== umount of a directory ends what is mounted there, whatever is where it came from"
make_array
start_daemon
mv "$ARRAY" "$ARRAY.old"
make_array
eplog mount "$ARRAY" "$WORK/m2"
eplog umount "$MNT"
DAEMON=
mountpoint -q "$MNT" && die "$MNT is still mounted"
mountpoint -q "$WORK/m2" || die "another array was unmounted"
eplog umount "$WORK/m2"
rm -r "$ARRAY"
mv "$ARRAY.old" "$ARRAY"
start_daemon
mv "$ARRAY" "$ARRAY.old"
make_array
refused "is not mounted; what is mounted at $MNT came from there, and is another array" "$EPLOG" umount "$ARRAY"
mountpoint -q "$MNT" || die "umount of an array that is not mounted unmounted another"
stop_daemon
rm -r "$ARRAY" "$ARRAY.old"

say "== a scrub that does not repair writes to no device, and does not call a degraded array well"
make_array
mv "$ARRAY/ssd1" "$WORK/away"
before=$(cat "$ARRAY"/ssd* "$ARRAY"/log* | sha256sum)
status=0
"$EPLOG" scrub "$ARRAY" >"$WORK/out" 2>"$WORK/err" || status=$?
[ $status -eq 3 ] || die "exit status $status of a scrub of a degraded array: $(cat "$WORK/out" "$WORK/err")"
grep -q 'no problem in what is there; the array is degraded' "$WORK/out" || die "$(cat "$WORK/out")"
[ "$before" = "$(cat "$ARRAY"/ssd* "$ARRAY"/log* | sha256sum)" ] || die "a scrub without --repair wrote to the devices"
mv "$WORK/away" "$ARRAY/ssd1"
[ "$(states "$ARRAY")" = none ] || die "after a look these are not ok: $(states "$ARRAY")"
eplog scrub "$ARRAY"

say "== what a scrub had found that was cut short is said apart, and once"
printf '{"uuid": "%s", "heal": false, "next_stripe": 1, "problems_found": 25, "healed": 0, "lost": 0}' \
  "$(sed -n 's/^uuid *= *"\(.*\)"/\1/p' "$ARRAY/array.toml")" >"$ARRAY/scrub.json"
status=0
"$EPLOG" scrub "$ARRAY" >"$WORK/out" 2>"$WORK/err" || status=$?
[ $status -eq 3 ] || die "exit status $status: $(cat "$WORK/out" "$WORK/err")"
grep -q 'went on at stripe 1, .*(25 problems) was not looked at again.*--restart' "$WORK/out" || die "$(cat "$WORK/out")"
grep -q '25 problems (25 of them found by the scrub that was cut short)' "$WORK/out" || die "$(cat "$WORK/out")"
grep -q 'more; --json lists' "$WORK/out" && die "a list is promised of what is in none: $(cat "$WORK/out")"
eplog scrub "$ARRAY"
grep -q 'all is well' "$WORK/out" || die "$(cat "$WORK/out")"
rm -r "$ARRAY"

say "== mode log: what only the log devices have is not given up unasked"
create_array --level 5 --ssds 3 --logs 1 --journal log --device-size $SSD_BYTES --log-size $LOG_BYTES
eplog volume create "$ARRAY" disk 8M
start_daemon
fill
dd if=/dev/urandom of="$MNT/disk" bs=4k count=1 seek=100 conv=notrunc,fsync status=none || die "a write fails"
sha256sum "$MNT/disk" >"$WORK/sum"
kill_daemon
mv "$ARRAY/log0" "$WORK/away"
refused "none is there: bring back log0, or give that up by mounting --without each" "$EPLOG" mount "$ARRAY" "$MNT"
refused "bring back log0" "$EPLOG" volume create "$ARRAY" other 1M
{ "$EPLOG" status "$ARRAY" 2>/dev/null || [ $? -eq 3 ]; } | grep -q 'bring back log0' || die "status does not say what is missing"
mv "$WORK/away" "$ARRAY/log0"
start_daemon
verify
kill_daemon
rm "$ARRAY/log0"
start_daemon --without log0
kill_daemon
start_daemon  # said once
stop_daemon
rm -r "$ARRAY"

say "== mode log: each log device is given up by its name, whatever array.toml lists"
create_array --level 6 --ssds 5 --logs 2 --journal log --device-size $SSD_BYTES --log-size $LOG_BYTES
eplog volume create "$ARRAY" disk 8M
start_daemon
fill
kill_daemon
mkdir "$WORK/away"
mv "$ARRAY"/log? "$WORK/away"
refused "bring back log0, log1" "$EPLOG" assemble "$ARRAY"
mv "$ARRAY/array.toml" "$WORK/away"
sed '/^name = "log0"/,$d' "$WORK/away/array.toml" | sed '$d' >"$ARRAY/array.toml"
refused "bring back log0, log1" "$EPLOG" mount "$ARRAY" "$MNT" --without log0
refused "bring back log0, log1" "$EPLOG" mount "$ARRAY" "$MNT" --without log1
mv "$WORK"/away/log1 "$ARRAY"
mv "$WORK"/away/array.toml "$ARRAY/array.toml"
refused "bring back log0, log1" "$EPLOG" mount "$ARRAY" "$MNT" --without "$ARRAY/log1"
start_daemon --without log0
verify
stop_daemon
rm -r "$ARRAY" "$WORK/away"

if [ "$(id -u)" -eq 0 ]; then
  say "== what is mounted over a mount is not taken away in its place"
  make_array
  start_daemon
  mount -t tmpfs over-it "$MNT"
  touch "$MNT/kept"
  refused "$MNT is covered by tmpfs 'over-it' at $MNT" "$EPLOG" umount "$MNT"
  refused "$MNT is covered by tmpfs 'over-it' at $MNT" "$EPLOG" umount "$ARRAY"
  [ -e "$MNT/kept" ] || die "umount took away what was mounted over the array"
  kill -TERM "$DAEMON"
  tail --pid="$DAEMON" -s 0.1 -f /dev/null
  DAEMON=
  [ -e "$MNT/kept" ] || die "SIGTERM took away what was mounted over the array"
  refused "covered by tmpfs 'over-it'" "$EPLOG" umount "$MNT"
  [ -e "$MNT/kept" ] || die "umount of a dead mount took away what was mounted over it"
  umount "$MNT"
  eplog umount "$MNT"
  grep -q 'took away the dead mount' "$WORK/out" || die "$(cat "$WORK/out")"
  mounted "$MNT" && die "a dead mount is left"

  say "== a mount that was moved is unmounted where it is"
  mount --bind "$WORK" "$WORK" && mount --make-private "$WORK"  # a mount is only moved out of one that is private
  mkdir -p "$WORK/moved-mnt"
  start_daemon
  mount --move "$MNT" "$WORK/moved-mnt" || die "mount --move"
  eplog umount "$WORK/moved-mnt"
  DAEMON=
  mounted "$WORK/moved-mnt" && die "a dead mount is left where it was moved to"
  umount "$WORK"
  check_array
  rm -r "$ARRAY"
fi
say "passed"
