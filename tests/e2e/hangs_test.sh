#!/usr/bin/env bash
# Things that hang beside an array: files that it writes to, commands that it runs, the serving process itself. The
# array goes on, it can be closed, and who asks gets an answer.
#
#   hangs_test.sh PATH-TO-EPLOG PATH-TO-FAULT_FS
#
# Needs /dev/fuse. Pipes that nobody reads stand for files on a file system that hangs.
set -u
EPLOG=$(realpath "$1")
FAULT_FS=$(realpath "$2")
HERE=$(realpath "$(dirname "$0")")
[ -c /dev/fuse ] && [ -w /dev/fuse ] || { echo "SKIPPED: there is no /dev/fuse to use"; exit 77; }
command -v python3 >/dev/null || { echo "SKIPPED: there is no python3"; exit 77; }
WORK=$(mktemp -d "${TMPDIR:-/tmp}/eplog-hangs.XXXXXX")
DAEMON=
STOPPED=  # who serves a file system in user space, and does not answer

cleanup() {
  cd /
  [ -n "$STOPPED" ] && kill -CONT "$STOPPED" 2>/dev/null
  fsfreeze -u "$WORK/disk" 2>/dev/null  # first: till then nothing that waits for it can end
  [ -n "$DAEMON" ] && kill -CONT "$DAEMON" 2>/dev/null
  if mountpoint -q "$WORK/mnt" 2>/dev/null; then
    timeout 60 "$EPLOG" umount "$WORK/mnt" >/dev/null 2>&1
    [ -n "$DAEMON" ] && kill -9 "$DAEMON" 2>/dev/null
    umount -l "$WORK/mnt" 2>/dev/null
  fi
  mountpoint -q "$WORK/disk/new" 2>/dev/null && timeout 60 "$EPLOG" umount "$WORK/disk/new" >/dev/null 2>&1
  umount -l "$WORK/disk" "$WORK/user" 2>/dev/null
  [ -n "$STOPPED" ] && kill -9 "$STOPPED" 2>/dev/null
  rm -rf "$WORK"
}
trap cleanup EXIT
cd "$WORK" || exit 1

# shellcheck source=tests/e2e/asserts.sh
source "$HERE/asserts.sh"

# Waits for a command that may hang, and says so.
soon() { timeout --kill-after=10 180 "$@"; }

mounted() {  # OPTION...
  run 0 soon "$EPLOG" mount a mnt "$@"
  DAEMON=$("$EPLOG" status a --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["array"]["pid"])')
}

run 0 "$EPLOG" create a --level 6 --ssds 4 --logs 2 --device-size 16M --log-size 8M --sparse
run 0 "$EPLOG" volume create a v 8M
run 0 "$EPLOG" create c --level 5 --ssds 3 --logs 1 --device-size 16M --log-size 8M --sparse

section "files beside the array that hang"
mkfifo a/events.jsonl a/scrub.json.new
mounted
head -c 4M /dev/urandom >content
run 0 soon cp content mnt/v
run 0 soon "$EPLOG" scrub a
run 0 soon "$EPLOG" fail a ssd1
run 3 soon "$EPLOG" status a
out_has "ssd1 .*failed"
run 0 soon cmp -n 4194304 content mnt/v
run 0 soon dd if=content of=mnt/v bs=64k conv=notrunc,fsync status=none
run 0 soon "$EPLOG" umount mnt
DAEMON=
rm a/events.jsonl a/scrub.json.new

section "a command that reads the mount while events come"
mounted --event-hook "cat $WORK/mnt/v >/dev/null; echo \"\$EPLOG_EVENT\" >>$WORK/told"
run 0 soon "$EPLOG" fail a log1
for ((i = 0; i < 600; ++i)); do
  grep -q log_device_lost told 2>/dev/null && break
  sleep 0.1
done
grep -q log_device_lost told || fail "the command was not run to its end"
# There is more than one event, and for each the command has a file of the mount open.
for ((i = 0; i < 600; ++i)); do
  soon "$EPLOG" umount mnt >/dev/null 2>&1 && break
  sleep 0.1
done
mountpoint -q mnt && fail "the command has ended, and the mount is still in use"
DAEMON=

section "a serving process that is stopped"
mounted
kill -STOP "$DAEMON"
for ((i = 0; i < 600; ++i)); do
  grep -q '^State:.*T' "/proc/$DAEMON/status" && break
  sleep 0.1
done
refused 1 "process $DAEMON serves this array and is stopped; kill -CONT $DAEMON lets it go on" soon "$EPLOG" status a
refused 1 "process $DAEMON serves this array and is stopped" soon "$EPLOG" umount mnt
refused 1 "process $DAEMON" soon "$EPLOG" volume create a w 1M

section "a path that is typed, where nothing answers"
refused 1 "mnt/v does not answer" soon "$EPLOG" spare add c mnt/v --force
refused 1 "mnt/none does not answer" soon "$EPLOG" spare add c mnt/none --make-file
refused 1 "mnt/v does not answer" soon "$EPLOG" replace c ssd2 mnt/v --force
refused 1 "mnt/v does not answer" soon "$EPLOG" replace c ssd2 mnt/v --force --dry-run
refused 1 "mnt/none does not answer" soon "$EPLOG" replace c ssd2 mnt/none --make-file
refused 1 "mnt/new does not answer" soon "$EPLOG" create mnt/new --level 5 --ssds 3 --logs 1
refused 1 "mnt/v does not answer" soon "$EPLOG" create d --level 5 --ssds mnt/v,c/ssd0,c/ssd1 --logs c/log0
refused 1 "mnt/none does not answer" soon "$EPLOG" status mnt/none
refused 1 "mnt/none does not answer" soon "$EPLOG" mount mnt/none there
refused 1 "mnt/none does not answer" soon "$EPLOG" mount c mnt/none
refused 1 "mnt/none does not answer" soon "$EPLOG" umount mnt/none
refused 1 "mnt/v does not answer" soon "$EPLOG" assemble mnt/v
refused 1 "mnt/none does not answer" soon "$EPLOG" mttdl --from-array mnt/none
refused 1 "mnt/v does not answer" soon "$EPLOG" mttdl --from mnt/v
refused 1 "mnt/v does not answer" soon "$EPLOG" mttdl --what-if mnt/v
refused 1 "mnt/c.svg does not answer" soon "$EPLOG" mttdl --fig4 --picture mnt/c.svg
refused 1 "mnt/v does not answer" soon "$EPLOG" trace stat mnt/v
refused 1 "mnt/v does not answer" soon "$EPLOG" trace convert mnt/v
refused 1 "mnt/none does not answer" soon "$EPLOG" trace generate mds --limit 10 -o mnt/none
refused 1 "mnt/v does not answer" soon "$EPLOG" replay mnt/v
refused 1 "mnt/none does not answer" soon "$EPLOG" replay mds --limit 10 --report mnt/none
refused 1 "mnt/none does not answer" soon "$EPLOG" replay mds --limit 10 --policy eplog --devices mnt/none
[ -e d ] && fail "something was made of an array that was refused"
run 0 soon "$EPLOG" check c

kill -CONT "$DAEMON"
run 3 soon "$EPLOG" status a
run 0 soon cmp -n 4194304 content mnt/v
run 0 soon "$EPLOG" umount mnt
DAEMON=

freezable() {  # a file system at disk that can be frozen
  [ "$(id -u)" -eq 0 ] && command -v fsfreeze mkfs.ext4 >/dev/null && losetup -f >/dev/null 2>&1 || return 1
  truncate -s 64M disk.img && mkfs.ext4 -q -F disk.img && mkdir -p disk && mount -o loop disk.img disk
}

section "verbs beside a member on a file system in user space that hangs"
# Nothing ends who waits for such a file system. So whoever looks there must not be who was called: he ends, and so does
# whoever reads what he says.
mkdir backing user
"$FAULT_FS" "$WORK/backing" user --uncached 2>fault_fs.err &
STOPPED=$!
for ((i = 0; i < 600; ++i)); do
  [ -e user/.control ] && break
  sleep 0.1
done
run 0 "$EPLOG" create u --level 5 --ssds 3 --logs 1 --device-size 16M --log-size 8M
run 0 "$EPLOG" volume create u v 8M
mv u/ssd0 backing/ssd0
sed -i "s|path = \"ssd0\"|path = \"$WORK/user/ssd0\"|" u/array.toml
ends() {  # STATUS VERB...
  local status=$1
  shift
  soon bash -c 'echo "stop ssd0" >user/.control' || fail "fault_fs refuses"
  { "$EPLOG" "$@" 2>&1; echo "exit status $?"; } | cat >said &
  for ((i = 0; i < 1800; ++i)); do
    kill -0 $! 2>/dev/null || break
    sleep 0.1
  done
  kill -0 $! 2>/dev/null && fail "eplog $* does not end"
  for ((i = 0; i < 1800; ++i)); do  # it had asked, and nobody has heard yet
    grep -q '^State:.*T' "/proc/$STOPPED/status" && break
    sleep 0.1
  done
  [ $i -lt 1800 ] || fail "eplog $* looked at nothing that hangs"
  kill -CONT "$STOPPED"
  wait $!
  grep -q "^exit status $status$" said || fail "eplog $*: $(cat said)"
}
verbs_end() {
  run 0 soon "$EPLOG" mount u mnt --io-deadline 600s
  DAEMON=$("$EPLOG" status u --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["array"]["pid"])')
  ends 0 status u
  ends 0 status u --json
  ends 0 volume list u
  ends 0 inject u ssd1 --read-error 0.000001
  ends 0 spare list u
  ends 0 spare add u u/extra
  ends 0 spare list u
  ends 0 spare remove u u/extra
  rm u/extra
  truncate -s 20M new
  ends 2 replace u ssd1 new --dry-run  # which is part of the array: that is what it meets
  ends 1 check u
  run 0 soon "$EPLOG" umount mnt
  DAEMON=
}
verbs_end
# So many that those that answer alone do not say whose array it is.
mv u/ssd2 backing/ssd2
sed -i "s|path = \"ssd2\"|path = \"$WORK/user/ssd2\"|" u/array.toml
verbs_end
section "a command for events beside a member that hangs"
# Whoever executes a program closes what he inherited, and that hangs as well: whoever is to be told of the loss would be
# told when it is over, and whoever looks at processes would wait till then.
run 0 "$EPLOG" create w --level 5 --ssds 3 --logs 1 --device-size 16M --log-size 8M --sparse
run 0 "$EPLOG" volume create w v 4M
mv w/ssd0 backing/of_w
sed -i "s|path = \"ssd0\"|path = \"$WORK/user/of_w\"|" w/array.toml
run 0 soon "$EPLOG" mount w mnt --io-deadline 2s --event-hook "echo \"\$EPLOG_EVENT \$EPLOG_DEVICE\" >>$WORK/called"
DAEMON=$("$EPLOG" status w --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["array"]["pid"])')
kill -STOP "$STOPPED"
run 0 soon dd if=content of=mnt/v bs=64k count=16 conv=notrunc,fsync
for ((i = 0; i < 1800; ++i)); do
  grep -qs "^device_failed ssd0$" called && break
  sleep 0.1
done
[ $i -lt 1800 ] || fail "nobody is told that a member hangs"
soon ps ax >/dev/null || fail "who looks at processes hangs"
kill -CONT "$STOPPED"
run 0 soon "$EPLOG" umount mnt
DAEMON=
for ((i = 0; i < 600; ++i)); do
  umount user 2>/dev/null && break
  sleep 0.1
done
[ $i -lt 600 ] || fail "what was left behind does not end"
wait "$STOPPED"
STOPPED=

section "an array of which everything lies on a file system that hangs"
if ! freezable; then
  say "  not looked at: needs root, loop devices and fsfreeze"
else
  run 0 "$EPLOG" create disk/k --level 5 --ssds 3 --logs 1 --device-size 12M --log-size 8M
  fsfreeze -f disk
  # What it says is read to its end, as a script does: that is not to wait for the process that stays, either.
  { "$EPLOG" mount disk/k mnt --io-deadline 3s 2>&1; echo "exit status $?"; } | cat >said &
  for ((i = 0; i < 600; ++i)); do
    kill -0 $! 2>/dev/null || break
    sleep 0.1
  done
  kill -0 $! 2>/dev/null && { fail "mount does not return" && fsfreeze -u disk; }
  say "  $(cat said)"
  if [ "$(wc -l <said)" -ne 2 ] || ! grep -q "^eplog mount: .*hangs: a request was not answered within 3 s" said || ! grep -q "^exit status 1$" said; then
    fail "mount says: $(cat said)"
  fi
  refused 1 "is still locked by process [0-9]+|in use by process [0-9]+|held by process [0-9]+" soon "$EPLOG" mount disk/k mnt --io-deadline 3s
  # A new directory cannot be made there.
  "$EPLOG" mount c disk/new 2>err &
  for ((i = 0; i < 600; ++i)); do
    grep -q "disk/new does not answer" err && break
    sleep 0.1
  done
  grep -q "disk/new does not answer" err || fail "a directory on what hangs: $(cat err)"
  fsfreeze -u disk
  wait
  rm -rf disk/new
  for ((i = 0; i < 600; ++i)); do
    "$EPLOG" mount disk/k mnt >/dev/null 2>err && break
    sleep 0.1
  done
  run 0 soon "$EPLOG" umount mnt
  run 0 soon "$EPLOG" check disk/k
  umount disk || fail "what was left behind does not end"
fi

section "a serving process that was killed while a member hangs"
frozen_member() {  # array k: its ssd1 lies on a file system of its own, which can be frozen
  freezable || return 1
  run 0 "$EPLOG" create k --level 5 --ssds 3 --logs 1 --device-size 24M --log-size 8M
  run 0 "$EPLOG" volume create k v 16M
  mv k/ssd1 disk/ssd1
  sed -i "s|path = \"ssd1\"|path = \"$WORK/disk/ssd1\"|" k/array.toml
}
hangs_in_kernel() { grep -q '^State:.*D' /proc/"$1"/task/*/status; }
if ! frozen_member; then
  say "  not looked at: needs root, loop devices and fsfreeze"
else
  run 0 soon "$EPLOG" mount k mnt
  pid=$("$EPLOG" status k --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["array"]["pid"])')
  fsfreeze -f disk
  dd if=/dev/urandom of=mnt/v bs=64k count=200 conv=notrunc,fsync status=none 2>/dev/null &
  for ((i = 0; i < 600; ++i)); do
    hangs_in_kernel "$pid" && break
    sleep 0.1
  done
  kill -9 "$pid"
  # What served it is dead: the mount goes, and whoever asks for the array is told why he cannot have it.
  run 0 soon "$EPLOG" umount mnt
  if grep -q " $WORK/mnt " /proc/self/mounts; then
    fail "the dead mount stays"
  else
    wait  # for the writer: nobody will answer it, and it was told so
  fi
  refused 1 "is still locked by process $pid, which was killed and does not end: the kernel waits" soon "$EPLOG" mount k mnt --without ssd1
  refused 1 "is still locked by process $pid, which was killed" soon "$EPLOG" status k
  # Nor does it keep others waiting.
  mkdir broken && printf 'uuid = "' >broken/array.toml
  refused 1 "broken/array.toml:1: " soon "$EPLOG" status broken
  fsfreeze -u disk
  for ((i = 0; i < 600; ++i)); do
    [ -e "/proc/$pid" ] || break
    sleep 0.1
  done
  run 0 soon "$EPLOG" mount k mnt
  run 0 soon "$EPLOG" umount mnt
  run 0 soon "$EPLOG" check k
  umount disk
fi

section "a serving process that was killed when a block device of it had been lost, and hangs"
# What it asked of that is the kernel's for as long as that hangs, and with it the lock of the array: whoever says that
# he does without the device waits for neither.
if ! freezable; then
  say "  not looked at: needs root, loop devices and fsfreeze"
else
  run 0 "$EPLOG" create l --level 5 --ssds 3 --logs 1 --device-size 24M --log-size 8M
  run 0 "$EPLOG" volume create l v 16M
  mv l/ssd1 disk/ssd1
  LOOP=$(losetup --show -f disk/ssd1) || fail "losetup"
  sed -i "s|path = \"ssd1\"|path = \"$LOOP\"|" l/array.toml
  run 0 soon "$EPLOG" mount l mnt --io-deadline 3s
  DAEMON=$("$EPLOG" status l --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["array"]["pid"])')
  fsfreeze -f disk
  head -c 12M /dev/urandom >content
  run 0 soon dd if=content of=mnt/v bs=64k conv=notrunc,fsync status=none
  run 3 soon "$EPLOG" status l
  out_has "ssd1 .*failed .*hangs: a request was not answered within 3 s"
  kill -9 "$DAEMON"
  DAEMON=
  run 0 soon "$EPLOG" umount mnt
  refused 1 "$LOOP is in use.* mount --without ssd1 goes on|$LOOP is locked.* mount --without ssd1 goes on" soon "$EPLOG" mount l mnt
  run 0 soon "$EPLOG" mount l mnt --without ssd1
  run 0 soon cmp -n 12582912 content mnt/v
  run 0 soon "$EPLOG" umount mnt
  fsfreeze -u disk
  for ((i = 0; i < 600; ++i)); do
    losetup -d "$LOOP" 2>/dev/null
    umount disk 2>/dev/null && break
    sleep 0.1
  done
  mountpoint -q disk && fail "what was left behind does not end"
fi

[ $FAILURES -eq 0 ] || { say "$FAILURES failures"; exit 1; }
say "passed"
