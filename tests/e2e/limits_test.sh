#!/usr/bin/env bash
# What the program says where the machine gives it less than it needs: files, memory, sizes of files. It ends with a line
# that says what is missing, never of a signal; and what fails with --json says so in JSON.
#
#   limits_test.sh PATH-TO-EPLOG
set -u
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "$0")/lib.sh" "$1"
need_fuse
need_programs python3
# shellcheck source=tests/e2e/asserts.sh
source "$(dirname "$0")/asserts.sh"
make_work
cd "$WORK" || die "no directory to work in"
ARRAY=$WORK/a
run 0 "$EPLOG" create a --level 6 --ssds 8 --logs 2 --device-size 32M

# limited OPTION LIMIT COMMAND...: under this ulimit.
limited() {
  bash -c 'ulimit "$1" "$2" && shift 2 && exec "$@"' limited "$@"
}
mounted() { mountpoint -q mnt; }

section "open files"
for files in 8 $(seq 13 26) 42 105; do
  refused 1 "may have $files files open, and to serve this array takes 106.*ulimit -n" limited -n "$files" "$EPLOG" mount a mnt
  mounted && fail "mounted with $files files"
done
run 0 limited -n 106 "$EPLOG" mount a mnt
run 0 "$EPLOG" status a --json
check "d['array']['pid'] > 0"
run 0 "$EPLOG" volume create a v 1M
cp mnt/v copy || fail "reading the volume"
# Those who only keep a connection take nothing that unmounting needs.
uuid=$("$EPLOG" status a --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["array"]["uuid"])')
python3 - "$uuid" >kept <<'PYTHON' &
import socket, sys, time
path = next(line.split()[7] for line in open("/proc/net/unix") if sys.argv[1] in line)
kept = []
for _ in range(100):
    kept.append(socket.socket(socket.AF_UNIX))
    kept[-1].connect(path)
print("all", flush=True)
time.sleep(600)
PYTHON
keeper=$!
for ((i = 0; i < 600; ++i)); do
  [ -s kept ] && break
  sleep 0.1
done
[ -s kept ] || fail "nobody keeps connections"
exec 7<mnt/v
refused 1 "in use" "$EPLOG" umount mnt
exec 7<&-
mounted || fail "unmounted with an open file"
run 0 "$EPLOG" umount mnt
mounted && fail "still mounted"
kill "$keeper"
wait "$keeper" 2>/dev/null
run 0 limited -Sn 20 "$EPLOG" mount a mnt  # soft: raised
run 0 "$EPLOG" umount mnt

section "many at once"
run 0 "$EPLOG" mount a mnt
for i in $(seq 300); do
  ("$EPLOG" commit a >"$WORK/many.$i" 2>&1 || echo "exit status $?" >>"$WORK/many.$i.failed") &
done
wait
for failed in "$WORK"/many.*.failed; do
  [ -e "$failed" ] && fail "one of 300 verbs: $(cat "${failed%.failed}" "$failed")"
done
run 0 "$EPLOG" umount mnt

section "address space"
PLAIN=1  # a build with sanitizers takes all of it
limited -v 640000 env -u ASAN_OPTIONS -u TSAN_OPTIONS "$EPLOG" --version >/dev/null 2>&1 || PLAIN=0  # no report of a sanitizer
for kib in 100000 200000 300000 400000; do
  [ $PLAIN -eq 1 ] || { say "SKIPPED: address space: this build takes all of it" && break; }
  refused 1 "out of memory.*ulimit -v" limited -v "$kib" "$EPLOG" mount a mnt
  mounted && fail "mounted with $kib KiB"
done

section "sizes of files"
refused 1 "mount: [^ ]*ssd0 has 32768 KiB, and this process may write files up to 1000 KiB only \(ulimit -f\)" limited -f 1000 "$EPLOG" mount a mnt
run 1 limited -f 1000 "$EPLOG" create b --level 5 --ssds 3 --logs 1 --device-size 32M
[ "$(wc -l <err)" -eq 1 ] || fail "create under ulimit -f: $(cat err)"
run 0 limited -f 1000 "$EPLOG" mount a mnt --read-only
run 0 "$EPLOG" umount mnt

section "write buffers"
refused 1 "larger than the array.*slots an SSD" "$EPLOG" mount a mnt --device-buffer 1048576
mounted && fail "mounted with buffers that are larger than the array"
run 0 "$EPLOG" mount a mnt --device-buffer 5000
pid=$("$EPLOG" status a --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["array"]["pid"])')
resident() { awk '/^VmRSS/ { print $2 }' "/proc/$pid/status"; }
empty=$(resident)
run 0 "$EPLOG" volume create a w 128M
dd if=/dev/urandom of=mnt/w bs=1M count=48 oflag=direct status=none
before=$(resident)
# Updates of single chunks that wait: 24 MiB of them.
python3 - mnt/w <<'PYTHON' || fail "updates"
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
for chunk in range(6144):
    page[:8] = chunk.to_bytes(8, "little")
    os.pwrite(fd, page, chunk * 2 * 4096)
PYTHON
full=$(resident)
say "resident: $empty KiB at first, $before before the updates, $full with up to 24 MiB buffered"
[ $PLAIN -eq 0 ] || [ $((full - before)) -le $((24 * 1024 * 12 / 10 + 4096)) ] || fail "24 MiB of updates took $((full - before)) KiB"
refused 2 "larger than the array" "$EPLOG" buffers a --device-buffer 1048576
run 0 "$EPLOG" buffers a --device-buffer 0
run 0 "$EPLOG" umount mnt
# Where memory is short: the figure is that of the limit.
[ $PLAIN -eq 0 ] || refused 1 "would hold up to 157 MiB in memory, of which they may take 122 MiB" \
  limited -v 500000 "$EPLOG" mount a mnt --device-buffer 5000

section "--json says what failed"
for command in "status nowhere" "check nowhere" "volume list nowhere" "scrub nowhere" "inspect nowhere" "status"; do
  # shellcheck disable=SC2086
  "$EPLOG" $command --json >out 2>err
  status=$?
  [ $status -eq 1 ] || [ $status -eq 2 ] || fail "exit status $status: $command"
  [ "$(wc -l <err)" -eq 1 ] || fail "not one line on standard error: $(cat err)"
  check "d['error']['exit_status'] == $status and d['error']['message'] != ''"
  check "open('err').read() == ('eplog ' + d['error']['verb']).strip() + ': ' + d['error']['message'] + '\n'"
done
run 0 "$EPLOG" volume list a --json
check "'error' not in d"

# What is said on a stream that the caller had closed must not go into the first file that was opened: a member.
section "closed standard streams"
run 0 "$EPLOG" mount a mnt
dd if=/dev/urandom of=mnt/v bs=1M count=1 conv=notrunc,fsync status=none
sum=$(sha256sum <mnt/v)
run 0 "$EPLOG" umount mnt
mkdir shelf && mv a/ssd1 shelf  # so that there is something to say
for command in "rebuild a" "commit a" "scrub a --repair" "volume create a x 1M" "status a" "volume list a" "check a"; do
  # shellcheck disable=SC2086
  "$EPLOG" $command <&- >&- 2>&-
  # shellcheck disable=SC2086
  timeout 60 "$EPLOG" $command >&- 2>/dev/null && fail "$command: the result could not be written, and it says success"
  [ "$(grep -l 'eplog: \|warning: ' a/ssd* a/log*)" = "" ] || fail "$command wrote what it had to say into a member"
done
# What was done is said to be, and is not to be tried again.
carried_out() {
  timeout 60 "$@" >&- 2>err && fail "$*: the result could not be written, and it says success"
  [ "$(grep -v 'warning: ' err)" = "eplog: the command was carried out, but standard output cannot be written to" ] ||
    fail "$*: $(cat err)"
}
carried_out "$EPLOG" volume create a y 1M
run 0 "$EPLOG" volume list a
out_has "^y "
carried_out "$EPLOG" volume delete a y
carried_out "$EPLOG" commit a
carried_out "$EPLOG" status a
carried_out "$EPLOG" replay mds --limit 10
timeout 60 "$EPLOG" replay mds --limit 0 >&- 2>err
grep -q "carried out" err && fail "what was refused is said to be done: $(cat err)"
"$EPLOG" mount a mnt <&- >&- 2>&-
mounted || fail "not mounted with all streams closed"
[ "$(sha256sum <mnt/v)" = "$sum" ] || fail "the volume is not what it was"
run 0 "$EPLOG" umount mnt
mv shelf/ssd1 a
run 0 "$EPLOG" rebuild a
run 0 "$EPLOG" check a

section "a limit of no requests"
refused 2 "limit" "$EPLOG" replay fin --limit 0
refused 2 "limit" "$EPLOG" trace stat fin --limit 0

run 0 "$EPLOG" check a
[ $FAILURES -eq 0 ] || die "$FAILURES things are wrong"
say "all is said in words"
