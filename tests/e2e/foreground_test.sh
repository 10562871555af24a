#!/usr/bin/env bash
# A mount that stays in the foreground ends as one in the background does: whoever interrupts it while a member hangs
# gets a closed array, with all that was flushed.
#
#   foreground_test.sh PATH-TO-EPLOG
set -u
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "$0")/lib.sh" "$1"
need_fuse
need_programs python3 dd cmp
# shellcheck source=tests/e2e/asserts.sh
source "$(dirname "$0")/asserts.sh"
make_work
cd "$WORK" || die "no directory to work in"

until_true() {  # WHAT COMMAND...
  local what=$1 tries
  shift
  for ((tries = 0; tries < 3000; ++tries)); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.1
  done
  die "not within five minutes: $what"
}

section "an interrupt while a write hangs"
create_array --level 6 --ssds 4 --logs 2 --device-size 24M --log-size 12M --sparse
run 0 "$EPLOG" volume create array v 8M
# Of itself a pipe that nobody reads ends a process: the shell must not have made it ignore that, as some that run tests do.
python3 - "$EPLOG" mount array mnt -f --io-deadline 15s >served 2>served.err <<'PYTHON' &
import os, signal, sys
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
PYTHON
DAEMON=$!
until_true "the array is mounted" grep -q serving served
CONNECTION=$(awk -v at="$MNT" '$5 == at { sub(/.*:/, "", $3); print $3 }' /proc/self/mountinfo | tail -n 1)
head -c 2M /dev/urandom >content
run 0 dd if=content of=mnt/v bs=64k oflag=direct conv=notrunc,fsync status=none
run 0 "$EPLOG" inject array ssd1 --hang
# It is not answered before the connection has been given up: the daemon waits five seconds for that, and for its member
# fifteen.
python3 - mnt/v >opened 2>writer.err <<'PYTHON' &
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_DIRECT)
print("open", flush=True)
os.pwrite(fd, mmap.mmap(-1, 1 << 20), 4 << 20)
os.fsync(fd)
PYTHON
writer=$!
disown $writer
until_true "the volume is open" grep -q open opened
waits() { grep -q '[1-9]' "/sys/fs/fuse/connections/$CONNECTION/waiting"; }
[ ! -d "/sys/fs/fuse/connections/$CONNECTION" ] || until_true "the write waits" waits
kill -INT "$DAEMON"
bounded 600 tail --pid="$DAEMON" -s 0.1 -f /dev/null || die "the daemon does not end"
wait "$DAEMON"
status=$?
DAEMON=
CONNECTION=
[ $status -eq 0 ] || fail "the daemon ended with exit status $status: $(cat served.err)"
bounded 600 tail --pid="$writer" -s 0.1 -f /dev/null || die "the writer does not end"
mountpoint -q mnt && fail "the mount is still there"

section "it was closed, and has what was flushed"
run 3 "$EPLOG" check array  # without the member that hung
out_has "no problem in what is there"
run 0 "$EPLOG" mount array mnt
run 0 cmp -n 2097152 content mnt/v
run 0 "$EPLOG" umount mnt

[ $FAILURES -eq 0 ] || die "$FAILURES things are wrong"
say "it ends as it should"
