# What the end-to-end tests share: a place to work in, skipping by name, arrays, loop devices, killing the daemon, and
# putting everything away at the end whatever happened. Source it with the path of the eplog program:
#
#   source "$(dirname "$0")/lib.sh" "$1"
#
# Exit status: 0 passed, 1 the test could not be carried out or the program failed, 42 data was lost or damaged (what
# a run that ignores flushes must end with), 77 skipped, with the reason on standard output.
# shellcheck shell=bash
# The leak check stops all threads at the end of a process, and waits for ever for one that hangs in the kernel, as some
# are made to here. The unit tests have it.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
EPLOG=$(realpath "$1")
WORK=
ARRAY=
MNT=
FS=           # where the file system on the loop device is mounted
LOOP=
DAEMON=       # process that serves the array
CONNECTION=   # of FUSE, to abort it
LOAD=()       # processes that put load on the array
SEED=${SEED:-$((RANDOM * 32768 + RANDOM))}
STARTED=$(date +%s)
readonly LOST=42

say() { printf '%s\n' "$*"; }
skip() {
  say "SKIPPED: $*"
  exit 77
}
die() {
  say "FAILED: $*"
  exit 1
}
lost() {
  say "LOST: $*"
  exit $LOST
}
elapsed() { echo $(($(date +%s) - STARTED)); }

need_programs() {
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null || skip "there is no $program"
  done
}
need_fuse() { [ -c /dev/fuse ] && [ -w /dev/fuse ] || skip "there is no /dev/fuse to use"; }
need_root() { [ "$(id -u)" -eq 0 ] || skip "needs root: $*"; }
need_loop() {
  need_root "loop devices"
  losetup -f >/dev/null 2>&1 || skip "there are no loop devices"
}

# A directory on a real disk: memory would hide how a disk behaves, and O_DIRECT with it.
make_work() {
  local base
  for base in "${TMPDIR:-/tmp}" /var/tmp; do
    case $(stat -f -c %T "$base") in
      tmpfs | ramfs) ;;
      *)
        WORK=$(mktemp -d "$base/eplog-e2e-XXXXXXXX")
        break
        ;;
    esac
  done
  [ -n "$WORK" ] || skip "TMPDIR and /var/tmp are both in memory; TMPDIR=DIRECTORY names one on a disk"
  ARRAY=$WORK/array
  MNT=$WORK/mnt
  FS=$WORK/fs
  mkdir "$FS"
  trap put_away EXIT
  trap 'exit 1' INT TERM
  RANDOM=$((SEED % 32768))
}

# bounded SECONDS COMMAND...: like timeout, but a command that hangs in the kernel does not hang the test: then the FUSE
# connection is cut, which ends every request on it with an error. A limit against hanging, and generous: machines are busy.
bounded() {
  local seconds=$1 tries
  shift
  "$@" &
  local command=$!
  for ((tries = 0; tries < seconds * 10; ++tries)); do
    kill -0 $command 2>/dev/null || break
    sleep 0.1
  done
  if kill -0 $command 2>/dev/null; then
    say "still running after $seconds s: $*"
    cut_connection
    kill -9 $command 2>/dev/null || true
    for ((tries = 0; tries < 100; ++tries)); do
      kill -0 $command 2>/dev/null || return 124
      sleep 0.1
    done
    return 124
  fi
  wait $command
}

cut_connection() {
  [ -n "$CONNECTION" ] || return 0
  { echo 1 >"/sys/fs/fuse/connections/$CONNECTION/abort"; } 2>/dev/null || true
}

alive() {  # a zombie is not
  local state
  state=$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null) || return 1
  [ -n "$state" ] && [ "$state" != Z ]
}

# ---- the array

create_array() {  # OPTION...
  "$EPLOG" create "$ARRAY" "$@" >/dev/null || die "create"
}

start_daemon() {  # OPTION...; a refusal leaves its reason in $WORK/mount.err
  local status=0
  # Bounded: opening may never hang. The pipes are closed for the daemon, which outlives this.
  bounded 1200 "$EPLOG" mount "$ARRAY" "$MNT" "$@" >"$WORK/mount.out" 2>"$WORK/mount.err" || status=$?
  [ $status -eq 0 ] || return $status
  DAEMON=$("$EPLOG" status "$ARRAY" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["array"]["pid"])')
  CONNECTION=$(awk -v at="$MNT" '$5 == at { sub(/.*:/, "", $3); print $3 }' /proc/self/mountinfo | tail -n 1)
}

stop_daemon() {
  "$EPLOG" umount "$MNT" >/dev/null || die "umount of the array"
  DAEMON=
  CONNECTION=
}

check_array() {
  local status=0
  "$EPLOG" check "$ARRAY" >"$WORK/check.out" 2>&1 || status=$?
  [ $status -eq 0 ] || lost "eplog check, exit status $status: $(head -c 2000 "$WORK/check.out")"
}

kill_daemon() {
  kill -9 "$DAEMON" || die "the daemon was dead before it was killed"
  local tries
  for ((tries = 0; tries < 3000; ++tries)); do
    alive "$DAEMON" || break
    sleep 0.1
  done
  alive "$DAEMON" && die "the killed daemon does not end"
  DAEMON=
}

# ---- a file system on a loop device over a volume

# Tests that run at the same time take and give back loop devices one after the other: between the end of one test's and
# the look whether it has ended, it could else be another's already.
attach_loop() {  # VOLUME
  local guard
  exec {guard}>"${TMPDIR:-/tmp}/eplog-e2e-loop.lock"
  flock "$guard"
  attach_loop_alone "$1"
  exec {guard}>&-
}

attach_loop_alone() {  # VOLUME
  local tries
  for ((tries = 0; tries < 20; ++tries)); do  # another process may take the free one first
    if LOOP=$(losetup --show -f --direct-io=on "$MNT/$1" 2>"$WORK/losetup.err"); then
      [ "$(losetup -n -O DIO "$LOOP" | tr -d ' ')" = 1 ] || die "no direct I/O on the loop device"
      LOOP_OF=$(loop_of)
      return 0
    fi
    LOOP=
    sleep 0.2
  done
  die "losetup: $(cat "$WORK/losetup.err")"
}

detach_loop() {
  [ -n "$LOOP" ] || return 0
  local guard
  exec {guard}>"${TMPDIR:-/tmp}/eplog-e2e-loop.lock"
  flock "$guard"
  detach_loop_alone
  exec {guard}>&-
}

# What it stands for; a process that does not take turns may have it as soon as it is free.
loop_of() { losetup -n -O BACK-INO,BACK-MAJ:MIN "$LOOP" 2>/dev/null || true; }

detach_loop_alone() {
  bounded 600 losetup -d "$LOOP" 2>/dev/null || true
  local tries
  for ((tries = 0; tries < 1000; ++tries)); do  # the kernel lets go when the last user is gone
    [ "$(loop_of)" = "$LOOP_OF" ] || break
    sleep 0.1
  done
  [ "$(loop_of)" != "$LOOP_OF" ] || die "the loop device does not go away"
  LOOP=
}

# put_load COMMAND...: in the background until stop_load. Its end is nobody's business, so the shell says nothing of it.
put_load() {
  "$@" 2>/dev/null &
  LOAD+=($!)
  disown $!
}

# Until the load has got something done that counts: the file has more than so many lines.
wait_for_work() {  # FILE LINES
  local tries
  for ((tries = 0; tries < 6000; ++tries)); do
    [ "$(wc -l <"$1")" -le "$2" ] || return 0
    sleep 0.1
  done
  die "the load does nothing"
}

stop_load() {
  local process
  [ ${#LOAD[@]} -eq 0 ] && return 0
  for process in "${LOAD[@]}"; do
    kill -9 "$process" 2>/dev/null || true
  done
  for process in "${LOAD[@]}"; do
    bounded 600 tail --pid="$process" -s 0.1 -f /dev/null || die "a process under load does not end"
  done
  LOAD=()
}

# What a power cut does to a machine: the daemon first, so that nothing that follows reaches the array. After its end the
# kernel fails everything below the loop device; the load, the file system, the loop device and the dead mount go away in
# that order.
crash() {
  kill_daemon
  cut_connection
  put_down
}

put_down() {
  stop_load
  bounded 600 umount "$FS" 2>/dev/null || umount -l "$FS" 2>/dev/null || true
  detach_loop
  umount -l "$MNT" 2>/dev/null || true
  CONNECTION=
}

# A boot after the crash: the array recovers, the file system replays its journal when it is mounted, and must then be
# without fault, looked at unmounted and read-only. (Before the replay e2fsck would only report the journal.)
boot() {  # VOLUME OPTION...
  local volume=$1
  shift
  start_daemon "$@" || lost "the array does not mount: $(cat "$WORK/mount.err")"
  attach_loop "$volume"
  bounded 1200 mount "$LOOP" "$FS" 2>"$WORK/fs.err" || lost "the file system does not mount: $(cat "$WORK/fs.err")"
  bounded 1200 umount "$FS" || die "umount of the file system"
  local status=0
  e2fsck -fn "$LOOP" >"$WORK/fsck.out" 2>&1 || status=$?
  [ $status -eq 0 ] || lost "e2fsck, exit status $status: $(head -c 2000 "$WORK/fsck.out")"
  bounded 1200 mount "$LOOP" "$FS" || die "second mount of the file system"
}

shut_down() {
  ! mountpoint -q "$FS" || bounded 1200 umount "$FS" || die "umount of the file system"
  detach_loop
  stop_daemon
}

random_sleep() {  # MIN_MS MAX_MS
  local ms=$(($1 + (RANDOM * 32768 + RANDOM) % ($2 - $1)))
  sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
}

# kill_options CANARY OPTION...: into OPTIONS, for `eplog mount`, what a test that kills the daemon was asked for. Its canary
# is itself with the options CANARY.
kill_options() {
  local canary option
  read -ra canary <<<"$1"
  shift
  for option in "$@"; do
    case $option in
      --volatile-cache) OPTIONS+=(--test-volatile-cache) ;;
      --ignore-flush) OPTIONS+=(--test-ignore-flush) ;;
      --canary)
        need_fuse
        need_loop
        must_lose "$0" "$EPLOG" "${canary[@]}"
        exit 0
        ;;
      *) die "unknown option $option" ;;
    esac
  done
}

# must_lose SCRIPT OPTION...: the proof that a test can fail: run with flushes that go nowhere it must find the loss.
must_lose() {
  local status=0
  bash "$@" || status=$?
  [ $status -eq $LOST ] || die "flushes were ignored, and the test ended with $status instead of $LOST"
  say "with flushes ignored the loss is found, as it must be"
}

put_away() {
  local status=$? process
  set +e
  trap - EXIT
  cd / || true
  for process in "${LOAD[@]}"; do
    kill -9 "$process" 2>/dev/null
  done
  if mountpoint -q "$FS"; then
    # A daemon that still answers lets the file system go cleanly.
    bounded 300 umount "$FS" 2>/dev/null || { cut_connection; umount -l "$FS" 2>/dev/null; }
  fi
  [ -n "$LOOP" ] && bounded 300 losetup -d "$LOOP" 2>/dev/null
  if mountpoint -q "$MNT" 2>/dev/null || [ -n "$DAEMON" ]; then
    bounded 600 "$EPLOG" umount "$MNT" >/dev/null 2>&1
    [ -n "$DAEMON" ] && alive "$DAEMON" && kill -9 "$DAEMON" 2>/dev/null
    cut_connection
    umount -l "$MNT" 2>/dev/null
  fi
  if [ -n "${KEEP:-}" ] && [ $status -ne 0 ] && [ $status -ne 77 ]; then
    say "kept: $WORK"
  else
    rm -rf --one-file-system "$WORK"
  fi
  exit $status
}
