#!/usr/bin/env bash
# The program from end to end, as a person uses it: every verb, and every bad input that a person can give. A refusal
# is one line on standard error with the right exit status, and changes nothing: files are compared by checksum.
#
#   cli_test.sh PATH-TO-EPLOG
#
# Needs /dev/fuse. Parts that need root (a small file system of its own, block devices) are skipped by name without it.
set -u
EPLOG=$(realpath "$1")
HERE=$(realpath "$(dirname "$0")")
WORK=$(mktemp -d "${TMPDIR:-/tmp}/eplog-cli.XXXXXX")
SKIPPED=()
SMALL=(--level 5 --ssds 3 --logs 1 --device-size 10M --log-size 4M)

cleanup() {
  cd /
  local directory
  for directory in "$WORK"/mnt "$WORK"/deep/mnt "$WORK"/elsewhere/mnt; do
    mountpoint -q "$directory" 2>/dev/null && "$EPLOG" umount "$directory" >/dev/null 2>&1
    umount -l "$directory" 2>/dev/null
  done
  umount -l "$WORK/disk" 2>/dev/null
  local loop
  for loop in "${LOOPS[@]:-}"; do
    [ -n "$loop" ] && losetup -d "$loop" 2>/dev/null
  done
  rm -rf "$WORK"
}
LOOPS=()
trap cleanup EXIT
cd "$WORK" || exit 1

# shellcheck source=tests/e2e/asserts.sh
source "$HERE/asserts.sh"

# All that is below a directory: names, sizes, contents.
fingerprint() { (cd "$1" && find . -printf '%p %y %s\n' | sort && find . -type f -print0 | sort -z | xargs -0 -r b2sum) | b2sum; }

# unchanged DIR refused ...: the same, and the directory is as before.
unchanged() {
  local directory=$1 before
  shift
  before=$(fingerprint "$directory")
  "$@"
  [ "$(fingerprint "$directory")" = "$before" ] || fail "changed $directory: $*"
}

json() { python3 -c "import json,sys; d=json.load(open('$WORK/out')); print(($1))" || fail "no JSON, or no $1"; }
pid_of() { "$EPLOG" status "$1" --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["array"]["pid"])'; }

if [ ! -c /dev/fuse ]; then
  say "SKIPPED: all of it, there is no /dev/fuse"
  exit 77
fi

section "usage"
refused 2 "say what to do: create, assemble, mount" "$EPLOG"
refused 2 "there is no verb 'craete'; did you mean 'create'" "$EPLOG" craete
refused 2 "there is no verb 'frob'; there are: create, list" "$EPLOG" volume frob
refused 2 "eplog create: ARRAY is required" "$EPLOG" create
refused 2 "no option '--jsn'; did you mean '--json'" "$EPLOG" status x --jsn
refused 1 "no array at nowhere: .*'eplog create' makes one" "$EPLOG" status nowhere
run 0 "$EPLOG" --version
run 0 "$EPLOG" create --help
out_has "Example"

section "create"
run 0 "$EPLOG" create plan "${SMALL[@]}" --dry-run
out_has "capacity"
[ -e plan ] && fail "--dry-run made something"
run 0 "$EPLOG" create "my array" "${SMALL[@]}"
out_has "eplog mount 'my array' DIR"
run 0 "$EPLOG" create a --level 6 --ssds 5 --logs 2 --device-size 10M --log-size 4M --json
[ "$(json 'd["array"]["level"], d["dry_run"], len(d["ssds"])')" = "(6, False, 5)" ] || fail "JSON of create"
[ "$(stat -c %b a/ssd0)" -ge $((10 * 2048)) ] || fail "member files are not written out"
run 0 "$EPLOG" create sparse "${SMALL[@]}" --sparse --chunk 64K --reserve 20% --journal log --name "other name"
[ "$(stat -c %b sparse/log0)" -lt $((4 * 2048)) ] || fail "--sparse wrote everything"
run 0 "$EPLOG" status sparse --json
[ "$(json 'd["array"]["name"], d["array"]["chunk_bytes"], d["array"]["journal"]')" = "('other name', 65536, 'log')" ] ||
  fail "options of create"
unchanged a refused 1 "holds an array already \('a'\)" "$EPLOG" create a "${SMALL[@]}"
refused 2 "an SSD of 64K is too small; it needs at least [0-9]+[KM]" "$EPLOG" create x --level 5 --ssds 3 --device-size 64K
refused 2 "log device of 8K is too small; it needs at least 320K" "$EPLOG" create x --level 5 --ssds 3 --log-size 8K
refused 2 "takes 2 log devices, not 1: --logs 2" "$EPLOG" create x --level 6 --ssds 5 --logs 1
refused 2 "needs 3 to 32 SSDs, not 2" "$EPLOG" create x --level 6 --ssds 2 --logs 2
refused 2 "--level is 5 or 6" "$EPLOG" create x --level 4 --ssds 5
refused 2 "'5Q' is not a size" "$EPLOG" create x --level 5 --ssds 3 --device-size 5Q
refused 1 "need .*TiB, but .* has only .* free" "$EPLOG" create x --level 5 --ssds 3 --device-size 100T
[ -e x ] && fail "a refused create left something"

section "create on devices"
mkdir dev
for name in 0 1 2 3; do truncate -s 10M dev/$name; done
ln -s "$WORK/dev/0" dev/link
ln dev/1 dev/hard
for again in dev/0 "$WORK/dev/./0" dev/link; do
  unchanged dev refused 2 "are the same device" "$EPLOG" create x --level 5 --ssds dev/0,dev/1,dev/2 --logs "$again"
done
unchanged dev refused 2 "ssd1 .* log0 .* are the same device" "$EPLOG" create x --level 5 --ssds dev/0,dev/1,dev/2 --logs dev/hard
unchanged dev refused 1 "there is no .*/dev/9" "$EPLOG" create x --level 5 --ssds dev/0,dev/1,dev/9 --logs 1
unchanged dev refused 2 "neither a regular file nor a block device" "$EPLOG" create x --level 5 --ssds dev/0,dev/1,dev --logs 1
mkfs.ext4 -q -F dev/2 2>/dev/null || printf '\123\357' | dd of=dev/2 bs=1 seek=1080 conv=notrunc status=none
unchanged dev refused 1 "holds an ext4 file system; --force overwrites it" "$EPLOG" create x --level 5 --ssds dev/0,dev/1,dev/2 --logs dev/3
unchanged "my array" refused 1 "holds a member \(ssd1\) of the EPLOG array 'my array'" \
  "$EPLOG" create x --level 5 --ssds "my array/ssd1,dev/0,dev/1" --logs dev/3
[ -e x ] && fail "a refused create left something"
run 0 "$EPLOG" create listed/db.toml --level 5 --ssds dev/0,dev/1,dev/2 --logs dev/3 --force
run 0 "$EPLOG" check listed/db.toml
run 0 "$EPLOG" check listed/db.toml --json

section "volumes without a mount"
run 0 "$EPLOG" volume create a data 8M
run 0 "$EPLOG" vol create a gone 1M
unchanged a refused 1 "'data' exists already" "$EPLOG" volume create a data 8M
unchanged a refused 2 "a volume's name has 1 to 200 bytes" "$EPLOG" volume create a x/y 8M
unchanged a refused 2 "names that begin with .eplog-deleted- are reserved" "$EPLOG" volume create a .eplog-deleted-1 8M
unchanged a refused 2 "bytes of UTF-8" "$EPLOG" volume create a $'x\xff' 8M
unchanged a refused 2 "a volume has at most 1P" "$EPLOG" volume create a big 2P
unchanged a refused 1 "no volume 'dtaa'; did you mean 'data'" "$EPLOG" volume delete a dtaa
unchanged a run 0 "$EPLOG" volume delete a gone --dry-run
out_has "would delete"
run 0 "$EPLOG" vol rm a gone
run 0 "$EPLOG" volume resize a data 16M
run 0 "$EPLOG" volume list a --json
[ "$(json '[(v["name"], v["size_bytes"]) for v in d]')" = "[('data', 16777216)]" ] || fail "list: $(cat out)"

section "mount"
run 0 "$EPLOG" mount a deep/mnt
out_has "eplog umount deep/mnt"
head -c 5000000 /dev/urandom >content
dd if=content of=deep/mnt/data bs=64K conv=notrunc,fsync status=none || fail "write"
cmp -n 5000000 content deep/mnt/data || fail "read back"
refused 1 "mounted already, at $WORK/deep/mnt by process [0-9]+; eplog umount" "$EPLOG" mount a deep/mnt
refused 1 "mounted already, at $WORK/deep/mnt by process [0-9]+" "$EPLOG" mount a mnt2
[ -e mnt2 ] && fail "a refused mount left its directory"
refused 1 "is in use: the array at $WORK/a is mounted there" "$EPLOG" mount "my array" deep/mnt
mkdir full && touch full/x
refused 1 "full is not empty \(it holds 'x'\)" "$EPLOG" mount "my array" full
refused 2 "content is not a directory" "$EPLOG" mount "my array" content
refused 1 "check needs it unmounted" "$EPLOG" check a
refused 1 "the array 'a' that $WORK/a holds is in use by process [0-9]+" "$EPLOG" create a "${SMALL[@]}" --force
run 0 "$EPLOG" volume create a second 4M
[ -e deep/mnt/second ] || fail "a new volume is not seen in the mount"
refused 1 "open in .*close it first" bash -c "exec 3<deep/mnt/second; exec '$EPLOG' volume delete a second"
run 0 "$EPLOG" volume delete a second
[ -e deep/mnt/second ] && fail "a deleted volume is still seen in the mount"
run 0 "$EPLOG" status a
out_has "state +(active|clean)"
run 0 "$EPLOG" status a --json
[ "$(json 'd["array"]["pid"] > 0, len(d["devices"])')" = "(True, 7)" ] || fail "status of a mounted array"
run 0 "$EPLOG" commit a
run 0 "$EPLOG" status a --json
[ "$(json 'd["exposure"]["pending_chunks"]')" = 0 ] || fail "commit left pending chunks"
run 0 "$EPLOG" checkpoint a
run 0 "$EPLOG" inspect a checkpoint
out_has "'data', 16.0 MiB"
refused 1 "is in use" bash -c "cd deep/mnt; exec '$EPLOG' umount '$WORK/deep/mnt'"
run 0 "$EPLOG" umount deep/mnt
mountpoint -q deep/mnt && fail "still mounted"
refused 1 "nothing of ours is mounted at deep/mnt" "$EPLOG" umount deep/mnt
refused 1 "a is not mounted" "$EPLOG" umount a

section "a directory behind a link, to mount on"
mkdir -p elsewhere/sub
ln -s elsewhere/sub link
run 0 "$EPLOG" mount a link/../mnt/.
mountpoint -q elsewhere/mnt || fail "link/../mnt is not where the link leads"
[ -e mnt ] && fail "link/../mnt was made beside the link"
run 0 "$EPLOG" umount link/../mnt
[ -e elsewhere/mnt ] && mountpoint -q elsewhere/mnt && fail "still mounted"
ln -s itself itself
refused 1 "cannot look at .*itself/../mnt" "$EPLOG" mount a itself/../mnt
refused 1 "itself/b" "$EPLOG" status itself/b
rm -r link itself elsewhere

section "mounted, and nobody can be told"
"$EPLOG" mount a mnt >/dev/full 2>"$WORK/err"
status=$?
if [ $status -ne 1 ] || [ "$(wc -l <err)" -ne 1 ] || ! grep -q "mounted 'a' at mnt, but standard output cannot be written to; eplog umount mnt ends it" err; then
  fail "mount to a full device: $status, $(cat err)"
fi
run 0 "$EPLOG" umount mnt

section "check, commit, checkpoint, inspect without a mount"
unchanged a run 0 "$EPLOG" check a
out_has "all is well"
unchanged a run 0 "$EPLOG" status a
run 0 "$EPLOG" commit a
run 0 "$EPLOG" checkpoint a
for view in "" superblock checkpoint log "row 0" "chunk data:1M" "chunk data:15M"; do
  # shellcheck disable=SC2086
  unchanged a run 0 "$EPLOG" inspect a $view
  # shellcheck disable=SC2086
  run 0 "$EPLOG" inspect a $view --json
  json 'type(d)' >/dev/null
done
run 0 "$EPLOG" inspect a/ssd1
out_has "copy A: generation"
run 0 "$EPLOG" inspect a/log0 log
run 0 "$EPLOG" inspect a/ssd0 log
refused 1 "has no EPLOG superblock" "$EPLOG" inspect content
refused 2 "rows 0 to [0-9]+, not 99999999" "$EPLOG" inspect a row 99999999
refused 2 "has 16777216 bytes" "$EPLOG" inspect a chunk data:16M
refused 2 "'frob' cannot be inspected" "$EPLOG" inspect a frob

section "a scrub that throws a device out says so"
run 0 "$EPLOG" create worn --level 5 --ssds 3 --logs 1 --device-size 24M --log-size 8M
run 0 "$EPLOG" volume create worn v 32M
run 0 "$EPLOG" mount worn mnt
dd if=/dev/urandom of=mnt/v bs=1M count=32 conv=notrunc,fsync status=none || fail "write"
run 0 "$EPLOG" commit worn
run 0 "$EPLOG" umount mnt
dd if=/dev/urandom of=worn/ssd1 bs=1M seek=6 count=12 conv=notrunc status=none
run 0 "$EPLOG" mount worn mnt
run 3 "$EPLOG" scrub worn --repair
out_has "copies written anew"
out_has "^ssd1 has failed \(.*\): eplog replace worn ssd1 NEW puts another in its place"
run 3 "$EPLOG" scrub worn --repair --json
[ "$(json '[(x["name"], x["state"]) for x in d["devices_not_ok"]]')" = "[('ssd1', 'failed')]" ] || fail "devices_not_ok"
truncate -s 0 worn/new
refused 2 "worn/new is too small for ssd1: it has 0 bytes and [0-9]+ are needed; give a larger one, or make it larger: truncate -s [0-9]+ $WORK/worn/new" "$EPLOG" replace worn ssd1 worn/new
refused 2 "worn/new is too small for every role: .*; give a larger one, or make it larger: truncate -s [0-9]+ worn/new" "$EPLOG" spare add worn worn/new
# shellcheck disable=SC2046
$(sed -n 's/.*make it larger: //p' "$WORK/err")  # as it was told
run 0 "$EPLOG" replace worn ssd1 worn/new
run 0 "$EPLOG" umount mnt
rm -rf worn

section "read-only, foreground, killed"
before=$(fingerprint a)
run 0 "$EPLOG" mount a mnt --read-only
cmp -n 5000000 content mnt/data || fail "read-only content"
touch mnt/new 2>/dev/null && fail "wrote to a read-only mount"
refused 1 "read-only" "$EPLOG" volume create a new 1M
run 0 "$EPLOG" umount mnt
[ "$(fingerprint a)" = "$before" ] || fail "a read-only mount changed something"
"$EPLOG" mount a mnt -f >out 2>err &
server=$!
for _ in $(seq 6000); do grep -q serving out && break; sleep 0.05; done
out_has "serving 'a' at mnt"
kill -INT $server
wait $server || fail "interrupted in the foreground: exit status $?"
run 0 "$EPLOG" mount a mnt --test-volatile-cache
dd if=content of=mnt/data bs=1M seek=8 count=1 conv=notrunc,fsync status=none
dd if=content of=mnt/data bs=1M seek=9 count=1 conv=notrunc status=none
kill -9 "$(pid_of a)"
# What lies on the disks before anybody recovered: the flushed chunk is described by the log, and is there.
run 0 "$EPLOG" inspect a chunk data:8M
out_has "content right"
grep -Eq "content (wrong|unreadable)" out && fail "inspect: $(cat out)"
run 0 "$EPLOG" inspect a log --json
[ "$(json 'len(d["entries"]) > 0, d["newest_mark"] >= d["checkpoint_sequence"]')" = "(True, True)" ] || fail "inspect log"
run 0 "$EPLOG" umount mnt
out_has "dead mount"
run 0 "$EPLOG" check a
run 0 "$EPLOG" mount a mnt --test-volatile-cache
cmp -n 5000000 content mnt/data || fail "lost something flushed"
cmp -n 1048576 <(tail -c +8388609 mnt/data) content || fail "lost something flushed just before the kill"
kill -9 "$(pid_of a)"
run 0 "$EPLOG" mount a mnt # over the dead mount
run 0 "$EPLOG" umount a
# The proof that the test above can fail: the same with flushes that go nowhere.
cp -r a unflushed
run 0 "$EPLOG" mount unflushed mnt --test-volatile-cache --test-ignore-flush
dd if=/dev/zero of=mnt/data bs=1M count=4 conv=notrunc,fsync status=none
kill -9 "$(pid_of unflushed)"
run 0 "$EPLOG" mount unflushed mnt
cmp -s -n 4194304 /dev/zero mnt/data && fail "a flush that was ignored was not noticed"
run 0 "$EPLOG" umount mnt
rm -rf unflushed

section "members that are not right"
fresh() { rm -rf bad && cp -r a bad; }
# What is left of the array must still hold what was written.
bad_holds_data() {
  run 0 "$EPLOG" mount bad mnt --read-only
  cmp -n 5000000 content mnt/data || fail "lost data: $*"
  run 0 "$EPLOG" umount mnt
}
# left_out REGEX: looked at, the array is degraded, and a warning says why; nothing is written.
left_out() {
  unchanged bad run 3 "$EPLOG" status bad
  grep -Eq "warning: $1" err || fail "no warning '$1' but: $(cat err)"
}
fresh && rm bad/ssd1
run 3 "$EPLOG" status bad
grep -q "warning: ssd1 is missing" err || fail "a missing member is not named"
run 3 "$EPLOG" check bad
bad_holds_data one member missing
rm bad/log1
run 3 "$EPLOG" status bad --json
[ "$(json 'd["array"]["state"], sorted(x["name"] for x in d["devices"] if x["state"] == "missing")')" = "('degraded', ['log1', 'ssd1'])" ] ||
  fail "status with two members missing"
rm bad/ssd0
run 1 "$EPLOG" mount bad mnt
grep -q "more than 2 members are missing" err || fail "too many missing: $(cat err)"
fresh && truncate -s 4M bad/ssd1
left_out "ssd1 \($WORK/bad/ssd1\) is truncated and left out: it has 4194304 bytes and needs 10485760"
bad_holds_data truncated
fresh && dd if=/dev/urandom of=bad/ssd1 bs=1M count=10 status=none
left_out "ssd1 \($WORK/bad/ssd1\) is no member and left out: it bears no superblock"
run 3 "$EPLOG" check bad
bad_holds_data overwritten
fresh && cp "my array/ssd1" bad/ssd1
left_out "ssd1 \($WORK/bad/ssd1\) is foreign and left out: it belongs to another array"
bad_holds_data foreign
fresh && cp bad/ssd0 bad/ssd1
left_out "ssd0 .* is doubled and left out: $WORK/bad/ssd1 says that too"
left_out "ssd1 .* is doubled and left out: $WORK/bad/ssd0 says that too"
bad_holds_data doubled
rm bad/log1
unchanged bad refused 1 "more than 2 members are missing: ssd0, ssd1, log1.*ssd0 .* is doubled" "$EPLOG" mount bad mnt
fresh && rm bad/ssd1 && ln bad/ssd0 bad/ssd1
left_out "ssd1 .* is left out: it is the same device as ssd0"
bad_holds_data the same device twice
fresh && rm bad/ssd? bad/log?
refused 1 "none of the 7 members" "$EPLOG" mount bad mnt
fresh && python3 - bad/ssd2 <<'PYTHON'
import struct, sys
def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
with open(sys.argv[1], "r+b") as device:
    for offset in (0, 32768):
        device.seek(offset)
        block = bytearray(device.read(4096))
        struct.pack_into("<II", block, 8, 99, 0)
        struct.pack_into("<I", block, 12, crc32c(block))
        device.seek(offset)
        device.write(block)
PYTHON
unchanged bad refused 1 "newer version of eplog \(format 99, this one knows 2\)" "$EPLOG" mount bad mnt
unchanged bad refused 1 "newer version" "$EPLOG" status bad
[ -e mnt/data ] && fail "mounted what was refused"

section "array.toml that is not right"
fresh && sed -i '1i level = 6' bad/array.toml
unchanged bad refused 1 "array.toml:1: unknown key 'level'; known here: uuid, name, member" "$EPLOG" mount bad mnt
fresh && echo 'size = 3' >>bad/array.toml
unchanged bad refused 1 "unknown key 'size'; known here: name, path" "$EPLOG" check bad
fresh && sed -i 's/"ssd1"/"ssd0"/' bad/array.toml
unchanged bad refused 1 "member 'ssd0' is listed twice" "$EPLOG" check bad
fresh && sed -i 's/^uuid = ".*"/uuid = "00000000-0000-0000-0000-000000000000"/' bad/array.toml
unchanged bad refused 1 "names the array 00000000-.*but its members belong to" "$EPLOG" mount bad mnt
fresh && printf 'uuid = "' >bad/array.toml
unchanged bad refused 1 "array.toml:1: " "$EPLOG" check bad
rm -rf bad

section "no room on the disk below"
if [ "$(id -u)" -ne 0 ]; then
  SKIPPED+=("no room on the disk below: needs root for a file system of its own")
else
  truncate -s 32M disk.img
  mkfs.ext4 -q -F disk.img && mkdir disk && mount -o loop disk.img disk || fail "cannot make a small file system"
  unchanged disk refused 1 "need 34.0 MiB, but $WORK/disk/x has only .* free" "$EPLOG" create disk/x "${SMALL[@]}"
  # Sparse files promise what the disk does not have: the array stops, and loses nothing that was flushed.
  run 0 "$EPLOG" create disk/x --level 5 --ssds 3 --logs 1 --device-size 24M --log-size 8M --sparse
  run 0 "$EPLOG" volume create disk/x data 36M
  run 0 "$EPLOG" mount disk/x mnt
  dd if=content of=mnt/data bs=64K conv=notrunc,fsync status=none || fail "write"
  dd if=/dev/urandom of=mnt/data bs=64K seek=100 count=440 conv=notrunc,fsync status=none 2>dd.err &&
    fail "a full disk was not noticed"
  cmp -n 5000000 content mnt/data || fail "a full disk lost data"
  run 3 "$EPLOG" status disk/x
  out_has "STOPPED +acknowledges nothing"
  refused 1 "unmounted 'x' from $WORK/mnt, but it was not closed: .*; what was flushed is safe, what was written after that is not durable" "$EPLOG" umount mnt
  mountpoint -q mnt && fail "still mounted after the failed close"
  for command in "mount disk/x mnt" "rebuild disk/x" "fail disk/x ssd2"; do
    # shellcheck disable=SC2086
    refused 1 "disk/x/ssd[0-2]: write failed.*No space left on device; make room where it lies, or.* --without (ssd[0-2]), then eplog replace $WORK/disk/x \\1 NEW" "$EPLOG" $command
  done
  umount disk && truncate -s 120M disk.img && e2fsck -fp disk.img >/dev/null; resize2fs disk.img >/dev/null 2>&1
  mount -o loop disk.img disk || fail "cannot mount the larger file system"
  run 0 "$EPLOG" check disk/x
  run 0 "$EPLOG" mount disk/x mnt
  cmp -n 5000000 content mnt/data || fail "a full disk lost data"
  dd if=/dev/urandom of=mnt/data bs=64K seek=100 count=300 conv=notrunc,fsync status=none || fail "no room after making room"
  run 0 "$EPLOG" umount mnt
  run 0 "$EPLOG" check disk/x
  # One member alone: the array does without it.
  run 0 "$EPLOG" create alone --level 5 --ssds 3 --logs 1 --device-size 24M --log-size 8M --sparse
  mv alone/ssd1 disk/ssd1 && sed -i "s|path = \"ssd1\"|path = \"$WORK/disk/ssd1\"|" alone/array.toml
  head -c 200M /dev/zero >disk/rest 2>/dev/null
  refused 1 "disk/ssd1: write failed.*--without ssd1, then eplog replace $WORK/alone ssd1 NEW" "$EPLOG" mount alone mnt
  run 0 "$EPLOG" mount alone mnt --without ssd1
  run 0 "$EPLOG" replace alone ssd1 alone/new
  run 0 "$EPLOG" rebuild alone
  run 0 "$EPLOG" umount mnt
  run 0 "$EPLOG" check alone
fi

section "block devices"
if [ "$(id -u)" -ne 0 ] || ! losetup -f >/dev/null 2>&1; then
  SKIPPED+=("block devices: needs root and loop devices")
else
  for name in 0 1 2 3; do
    truncate -s 0 dev/$name && truncate -s 10M dev/$name
    LOOPS+=("$(losetup --show -f dev/$name)")
  done
  list="${LOOPS[0]},${LOOPS[1]},${LOOPS[2]}"
  refused 2 "are the same device" "$EPLOG" create blocks --level 5 --ssds "${LOOPS[0]},${LOOPS[1]},${LOOPS[0]}" --logs "${LOOPS[3]}"
  run 0 "$EPLOG" create blocks --level 5 --ssds "$list" --logs "${LOOPS[3]}"
  run 0 "$EPLOG" volume create blocks data 8M
  run 0 "$EPLOG" mount blocks mnt
  dd if=content of=mnt/data bs=64K conv=notrunc,fsync status=none || fail "write"
  refused 1 "in use" "$EPLOG" create other --level 5 --ssds "$list" --logs "${LOOPS[3]}" --force
  cmp -n 5000000 content mnt/data || fail "read back"
  run 0 "$EPLOG" umount mnt
  run 0 "$EPLOG" check blocks
  # Devices are told that nothing of it is needed any more.
  used=$(du -k dev/0 | cut -f1)
  run 0 "$EPLOG" create blocks --level 5 --ssds "$list" --logs "${LOOPS[3]}" --force --no-discard
  [ "$(du -k dev/0 | cut -f1)" -ge "$used" ] || fail "--no-discard discarded something"
  run 0 "$EPLOG" create blocks --level 5 --ssds "$list" --logs "${LOOPS[3]}" --force
  [ "$(du -k dev/0 | cut -f1)" -lt $((used / 2)) ] || fail "dev/0 still holds what was there before: $(du -k dev/0), before $used"
fi

for what in "${SKIPPED[@]:-}"; do
  [ -n "$what" ] && say "SKIPPED: $what"
done
if [ $FAILURES -ne 0 ]; then
  say "$FAILURES failures"
  exit 1
fi
say "all is well"
