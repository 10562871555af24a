#!/usr/bin/env bash
# Looking before leaping: `eplog assemble` on members that are all there, missing, stale, foreign, doubled, truncated and
# overwritten, and what it writes mounted; and --dry-run of every verb that destroys or moves data, mounted and not, with
# the proof that nothing changed: checksums of members and of array.toml.
#
#   assemble_test.sh PATH-TO-EPLOG
source "$(dirname "$0")/lib.sh" "$1"

need_fuse
need_programs python3 sha256sum cmp dd
make_work
cd "$WORK" || die "no directory to work in"
mkdir "$MNT"
readonly SMALL=(--level 6 --ssds 4 --logs 2 --device-size 10M --log-size 16M)

# run STATUS COMMAND...: the exit status must be this; output in out and err.
run() {
  local expected=$1 status=0
  shift
  "$@" >out 2>err || status=$?
  [ $status -eq "$expected" ] || die "exit status $status instead of $expected: $* ($(cat out err | head -c 1000))"
}
has() { grep -Eq -- "$1" out || die "no '$1' in: $(cat out)"; }
refused_with() {  # the one line of an error
  [ "$(grep -vc 'warning: ' err)" -eq 1 ] || die "not one line but: $(cat err)"
  grep -Eq -- "$1" err || die "no '$1' in: $(cat err)"
}
left_out() {  # a warning, when the array is looked at
  untouched bad run 3 "$EPLOG" status bad
  grep -Eq "warning: $1" err || die "no warning '$1' in: $(cat err)"
}
json() { python3 -c "import json; d = json.load(open('out')); print(($1))" || die "no JSON, or no $1: $(cat out)"; }
is() { [ "$1" = "$2" ] || die "'$1' instead of '$2': $(head -c 2000 out)"; }
verdicts() { json "sorted((x['path'].split('/')[-1], x['verdict'], x['member']) for x in d['devices'] if x['verdict'] != 'part')"; }
fingerprint() { (cd "$1" && find . -printf '%p %y %s\n' | sort && find . -type f -print0 | sort -z | xargs -0 -r sha256sum); }
# untouched DIRECTORY run ...: and nothing below the directory has changed.
untouched() {
  local directory=$1 before
  shift
  before=$(fingerprint "$directory")
  "$@"
  [ "$(fingerprint "$directory")" = "$before" ] || die "changed something in $directory: $*"
}
holds_data() {  # ARRAY
  local array=$1
  run 0 "$EPLOG" mount "$array" "$MNT" --commit-idle off
  cmp -n 3000000 content "$MNT/data" || lost "what was written: $array"
  run 0 "$EPLOG" umount "$MNT"
}
fresh() { rm -rf bad && cp -r "$ARRAY" bad; }

head -c 3000000 /dev/urandom >content
create_array "${SMALL[@]}"
"$EPLOG" create other "${SMALL[@]}" >/dev/null || die "create"
"$EPLOG" volume create "$ARRAY" data 8M >/dev/null || die "volume create"
start_daemon --commit-idle off
dd if=content of="$MNT/data" bs=64K conv=notrunc,fsync status=none || die "write"
for block in 3 77 140 300 301; do  # pending at the end
  dd if=content of="$MNT/data" bs=4K skip=$block seek=$block count=1 conv=notrunc,fsync oflag=direct status=none || die "update"
done
stop_daemon

say "== all members, in any order, as a directory and one by one"
untouched "$ARRAY" run 0 "$EPLOG" assemble "$ARRAY"
has "array 'array' \([0-9a-f-]{36}\): RAID-6 of 4 SSDs \(2 data \+ 2 parity\), 2 log devices"
has "whole, survives 2 more losses"
has "ssd3 +part +$ARRAY/ssd3"
run 0 "$EPLOG" assemble "$ARRAY"/log1 "$ARRAY"/ssd{3,1,0,2} "$ARRAY"/log0 "$ARRAY" --json
is "$(json 'd["arrays"][0]["opens"], len(d["arrays"]), len(d["devices"]), d["file"]')" "('whole', 1, 6, None)"
is "$(json '[x["member"] for x in d["devices"]]')" "['ssd0', 'ssd1', 'ssd2', 'ssd3', 'log0', 'log1']"
run 1 "$EPLOG" assemble "$ARRAY" nowhere
refused_with "there is no .*/nowhere"
run 2 "$EPLOG" assemble

say "== written to a file, and mounted by it"
mkdir away
untouched "$ARRAY" run 0 "$EPLOG" assemble "$ARRAY" -o away/db.toml
has "next: eplog mount $WORK/away/db.toml DIR"
cmp -s "$ARRAY/array.toml" away/db.toml && die "paths are those of another directory"
holds_data away/db.toml
run 0 "$EPLOG" assemble "$ARRAY" -o "$ARRAY"  # says so already
before=$(cat "$ARRAY/array.toml")
echo 'uuid = "' >"$ARRAY/array.toml"
untouched "$ARRAY" run 1 "$EPLOG" assemble "$ARRAY" -o "$ARRAY"
refused_with "array.toml says otherwise; --force overwrites it"
run 0 "$EPLOG" assemble "$ARRAY" -o "$ARRAY" --force
is "$(cat "$ARRAY/array.toml")" "$before"

say "== swapped: who is who is in the superblocks"
fresh
mv bad/ssd0 x && mv bad/ssd2 bad/ssd0 && mv x bad/ssd2
run 0 "$EPLOG" assemble bad -o bad --force
has "ssd2 +part +$WORK/bad/ssd0"
holds_data bad

say "== one missing, and too many"
fresh
rm bad/ssd1
untouched bad run 3 "$EPLOG" assemble bad
has "degraded, without ssd1; survives 1 more loss"
run 3 "$EPLOG" assemble bad -o bad --force
grep -q ssd1 bad/array.toml && die "a member that is not there is listed"
holds_data bad
# Members are still known by their names, though one is not listed before them.
run 0 "$EPLOG" fail bad ssd3 --dry-run --json
is "$(json 'd["device"], d["path"].split("/")[-1]')" "('ssd3', 'ssd3')"
ln -s nowhere bad/dangling
untouched bad run 1 "$EPLOG" replace bad ssd1 bad/dangling --dry-run
grep -q 'is a link to nothing' "$WORK/err" || fail "$(cat "$WORK/err")"
rm bad/dangling
run 0 "$EPLOG" replace bad ssd1 bad/ssd1-new
run 0 "$EPLOG" rebuild bad
run 0 "$EPLOG" status bad
holds_data bad
fresh
rm bad/ssd1 bad/ssd3 bad/log0 bad/array.toml
untouched bad run 1 "$EPLOG" assemble bad
has "cannot be opened: more than 2 members are missing: ssd1, ssd3, log0; bring back at least 1"
grep -q "cannot be opened from these: more than 2" "$WORK/err" || fail "nothing on standard error: $(cat "$WORK/err")"
untouched bad run 1 "$EPLOG" assemble bad -o bad
refused_with "cannot be opened from these"

say "== stale: failed while mounted, then given with the others"
fresh
run 0 "$EPLOG" mount bad "$MNT"
run 0 "$EPLOG" fail bad ssd2
dd if=content of="$MNT/data" bs=4K count=20 conv=notrunc,fsync status=none || die "write"
run 0 "$EPLOG" umount "$MNT"
untouched bad run 3 "$EPLOG" assemble bad --json
is "$(verdicts)" "[('ssd2', 'stale', 'ssd2')]"
is "$(json 'd["arrays"][0]["missing"], d["arrays"][0]["further_losses_survived"]')" "(['ssd2'], 1)"
run 3 "$EPLOG" assemble bad
has "ssd2 +stale +$WORK/bad/ssd2 *: it failed or was away while the others went on: it is of epoch [0-9]+, they are at [0-9]+"
run 3 "$EPLOG" status bad
grep -Eq "warning: ssd2 \($WORK/bad/ssd2\) is stale and left out" err || die "nothing is said of the stale one: $(cat err)"
mkdir shelf
mv bad/ssd0 bad/log0 shelf
run 1 "$EPLOG" mount bad "$MNT"
refused_with "more than 2 members are missing: ssd0, ssd2 \(stale: $WORK/bad/ssd2: it failed or was away .*\), log0"
mv shelf/ssd0 shelf/log0 bad
run 3 "$EPLOG" assemble bad -o bad --force
grep -q '"ssd2"' bad/array.toml && die "a stale member is listed"
holds_data bad

say "== foreign"
fresh
untouched other run 3 "$EPLOG" assemble bad other/ssd1 --json
is "$(verdicts)" "[('ssd1', 'foreign', 'ssd1')]"
is "$(json 'd["arrays"][0]["opens"], d["arrays"][0]["chosen"], len(d["arrays"])')" "('whole', True, 2)"
run 3 "$EPLOG" assemble bad other/ssd1 -o away --force
grep -q other away/array.toml && die "a foreign device is listed"
cp other/ssd1 bad/ssd1
left_out "ssd1 .* is foreign and left out"
cp other/ssd0 bad/ssd0 && cp "$ARRAY/ssd1" bad/ssd1  # the first one is to blame, not the second
left_out "ssd0 .* is foreign and left out"

say "== several arrays"
fresh
run 0 "$EPLOG" assemble bad other
has "several arrays: --uuid PREFIX chooses"
run 2 "$EPLOG" assemble bad other -o both.toml
refused_with "there are several arrays; --uuid [0-9a-f]{8} would choose"
[ -e both.toml ] && die "written all the same"
uuid=$(sed -n 's/^uuid = "\(.*\)"/\1/p' other/array.toml)
run 3 "$EPLOG" assemble bad other --uuid "${uuid:0:8}" -o both.toml
has "array 'other' .*"
grep -q "$uuid" both.toml || die "another array was written"
run 1 "$EPLOG" assemble bad other --uuid xyz
refused_with "fits none of the arrays"

say "== doubled: a copy of a member"
cp bad/ssd1 copy
untouched bad run 3 "$EPLOG" assemble bad copy --json
is "$(verdicts)" "[('copy', 'doubled', 'ssd1'), ('ssd1', 'doubled', 'ssd1')]"
run 1 "$EPLOG" assemble bad copy -o one.toml
has "ssd1 +doubled +$WORK/copy *: $WORK/bad/ssd1 says that too, with a superblock of the same age; give one of them, or mount with --without and the path of the other"
refused_with "says that it is ssd1, and .* says that too"
[ -e one.toml ] && die "written all the same"
cp bad/ssd1 bad/ssd0
left_out "ssd0 .* is doubled and left out: $WORK/bad/ssd1 says that too"
left_out "ssd1 .* is doubled and left out: $WORK/bad/ssd0 says that too"
cp "$ARRAY/ssd0" bad/ssd0 && ln bad/ssd1 link
run 0 "$EPLOG" assemble bad link "$WORK/bad/../bad/ssd1"  # the same device by other paths is no second one
rm link

say "== truncated"
truncate -s 4M bad/ssd1
untouched bad run 3 "$EPLOG" assemble bad
has "ssd1 +truncated +$WORK/bad/ssd1 *: it has 4194304 bytes and needs [0-9]+"
left_out "ssd1 .* is truncated and left out"
run 3 "$EPLOG" assemble bad -o bad --force
holds_data bad

say "== superblocks overwritten"
fresh
dd if=/dev/urandom of=bad/ssd1 bs=4K count=1 seek=8 conv=notrunc status=none
untouched bad run 0 "$EPLOG" assemble bad --json
is "$(json '[(x["member"], x["superblock_copies"]) for x in d["devices"] if x["superblock_copies"] < 2]')" "[('ssd1', 1)]"
printf 'x' | dd of=bad/ssd2 bs=1 seek=200 conv=notrunc status=none
printf 'x' | dd of=bad/ssd2 bs=1 seek=$((32768 + 200)) conv=notrunc status=none
untouched bad run 3 "$EPLOG" assemble bad
has "ssd1 +part +$WORK/bad/ssd1 *: one of the two copies of its superblock is damaged"
has "- +damaged +$WORK/bad/ssd2 *: no copy of its superblock is whole"
run 3 "$EPLOG" status bad
grep -Eq "warning: ssd2 \($WORK/bad/ssd2\) is damaged and left out" err || die "nothing is said of the damaged one: $(cat err)"
dd if=/dev/urandom of=bad/ssd2 bs=4K count=16 conv=notrunc status=none
untouched bad run 3 "$EPLOG" assemble bad  # in a directory it is a file like any other
has "degraded, without ssd2"
grep -q bad/ssd2 out && die "a file of no array: $(cat out)"
untouched bad run 3 "$EPLOG" assemble bad bad/ssd2
has "no member +$WORK/bad/ssd2 *: it bears no superblock"
run 1 "$EPLOG" assemble bad/ssd2 content
refused_with "no member of an array is among these devices"

say "== mounted: looked at all the same"
start_daemon --commit-idle off
run 0 "$EPLOG" assemble "$ARRAY" --json
is "$(json 'all(x["in_use"] for x in d["devices"])')" True
stop_daemon

# ---------------------------------------------------------------------------------------------------------- dry runs

plan_is() {  # BEFORE AFTER: losses survived
  is "$(json 'd["dry_run"], d["before"]["further_ssd_losses_survived"], d["after"]["further_ssd_losses_survived"]')" "(True, $1, $2)"
}

# Every dry run on the array in $1, which is mounted or not.
dry_runs() {
  local array=$1
  run 0 "$EPLOG" fail "$array" ssd1 --dry-run
  has "would fail ssd1 of '.*', changing nothing now"
  has "survives +any 2 further losses -> "
  run 0 "$EPLOG" fail "$array" ssd1 --dry-run --json
  plan_is 2 1
  is "$(json 'd["device"], d["after"]["state"], d["chunks_losing_copy"] > 100')" "('ssd1', 'degraded', True)"
  run 0 "$EPLOG" fail "$array" log0 --dry-run --json
  is "$(json 'd["commit_chunks"] == d["before"]["pending_chunks"] > 0, d["after"]["pending_chunks"]')" "(True, 0)"
  run 1 "$EPLOG" fail "$array" ssd9 --dry-run
  refused_with "has no member ssd9: there are ssd0 to log1"
  run 1 "$EPLOG" replace "$array" ssd1 "$WORK/new" --dry-run
  refused_with "there is no $WORK/new; --make-file makes a file there"
  run 2 "$EPLOG" replace "$array" ssd1 "$WORK/new" --dry-run --make-file
  refused_with "ssd1 is part of the array: fail it first"
  run 0 "$EPLOG" volume delete "$array" data --dry-run
  has "frees +[0-9.]+ MiB for other volumes"
  run 0 "$EPLOG" volume delete "$array" data --dry-run --json
  plan_is 2 2
  is "$(json 'd["after"]["free_bytes"] - d["before"]["free_bytes"] == d["freed_bytes"] == d["volume"]["allocated_bytes"] > 0, d["volume"]["open"]')" "(True, False)"
  run 1 "$EPLOG" volume delete "$array" dtaa --dry-run
  refused_with "did you mean 'data'"
  run 0 "$EPLOG" scrub "$array" --repair --dry-run
  has "reads +[0-9.]+ MiB: every chunk"
  run 0 "$EPLOG" scrub "$array" --repair --dry-run --json
  plan_is 2 2
  is "$(json 'd["read_bytes"] > 3000000')" True
  run 2 "$EPLOG" scrub "$array" --dry-run
  run 2 "$EPLOG" fail "$array" ssd1 --json
  [ -e "$WORK/new" ] && die "a dry run made a file"
  return 0
}

say "== dry runs without a mount change no byte"
fresh
untouched bad dry_runs bad
run 0 "$EPLOG" scrub bad --repair --dry-run
has "last +unknown"
run 0 "$EPLOG" scrub bad --repair
run 0 "$EPLOG" scrub bad --repair --dry-run
has "last +20[0-9-]+T[0-9:]+Z: everything was read: 0 problems"

say "== dry runs on a mounted array"
fresh
run 0 "$EPLOG" mount bad "$MNT" --commit-idle off
run 0 "$EPLOG" status bad --json
is "$(json 'd["exposure"]["pending_chunks"] > 0')" True
dry_runs bad
exec 3<"$MNT/data"
run 1 "$EPLOG" volume delete bad data --dry-run
refused_with "data is open in .*: close it first"
exec 3<&-
run 0 "$EPLOG" status bad --json
is "$(json '[x["state"] for x in d["devices"]]')" "['ok', 'ok', 'ok', 'ok', 'ok', 'ok']"
cmp -n 3000000 content "$MNT/data" || lost "by a dry run"

say "== what is foretold happens"
run 0 "$EPLOG" fail bad ssd1 --dry-run --json
foretold=$(json 'd["after"]["state"], d["after"]["further_ssd_losses_survived"]')
run 0 "$EPLOG" fail bad ssd1
run 3 "$EPLOG" status bad --json
is "$(json 'd["array"]["state"], d["exposure"]["further_ssd_losses_survived"]')" "$foretold"
run 0 "$EPLOG" fail bad ssd2
run 2 "$EPLOG" fail bad ssd3 --dry-run
refused_with "losing ssd3 would be more than 2 devices that are not ok"
run 0 "$EPLOG" replace bad ssd1 bad/new --dry-run
has "makes +$WORK/bad/new, a file of [0-9.]+ MiB"
has "survives +no further loss -> any 1 further loss"
[ -e bad/new ] && die "a dry run made a file"
run 0 "$EPLOG" replace bad ssd1 bad/new --dry-run --json
is "$(json 'd["replacement"]["made"], d["replacement"]["destroys"], d["rebuild_bytes"] > 1000000')" "(True, None, True)"
cp other/ssd3 spare
run 1 "$EPLOG" replace bad ssd1 spare --dry-run
refused_with "spare holds a member \(ssd3\) of the EPLOG array 'other'.*--force"
before=$(sha256sum spare)
run 0 "$EPLOG" replace bad ssd1 spare --dry-run --force
has "destroys +$WORK/spare: a member \(ssd3\) of the EPLOG array 'other'"
is "$(sha256sum spare)" "$before"
truncate -s 1M spare
run 2 "$EPLOG" replace bad ssd1 spare --dry-run --force
refused_with "spare holds a member .ssd3. of the EPLOG array .other.*, and is too small for ssd1"
run 0 "$EPLOG" replace bad ssd1 bad/ssd1 --dry-run --force  # the same device as an empty one
run 0 "$EPLOG" umount "$MNT"
untouched bad run 0 "$EPLOG" replace bad ssd1 bad/new --dry-run
run 0 "$EPLOG" mount bad "$MNT" --read-only
run 1 "$EPLOG" fail bad ssd3 --dry-run
refused_with "read-only"
run 0 "$EPLOG" umount "$MNT"

say "== what is no file is not replaced by one, nor read"
mkfifo pipe figure.svg
ln -s pipe link
for out in pipe link /dev/full; do
  run 2 "$EPLOG" assemble "$ARRAY" -o $out --force
  refused_with "$out is no file"
done
[ -p pipe ] && [ -L link ] && [ -c /dev/full ] || die "$(ls -l pipe link /dev/full)"
run 2 "$EPLOG" mttdl --fig4 --picture figure.svg
refused_with "figure.svg is no file"
[ -p figure.svg ] || die "$(ls -l figure.svg)"
rm pipe link figure.svg

say "== create --force --dry-run"
fresh
truncate -s 10M dev1 dev2
cp other/ssd0 dev0
truncate -s 4M log
mkdir -p lab
untouched lab run 1 "$EPLOG" create lab/new --level 5 --ssds dev0,dev1,dev2 --logs log --dry-run
refused_with "dev0 holds a member \(ssd0\) of the EPLOG array 'other'"
untouched lab run 0 "$EPLOG" create lab/new --level 5 --ssds dev0,dev1,dev2 --logs log --force --dry-run
has "destroys +$WORK/dev0: a member \(ssd0\) of the EPLOG array 'other'"
has "empty +$WORK/dev1"
has "capacity +[0-9.]+ MiB"
before=$(sha256sum dev? log)
run 0 "$EPLOG" create lab/new --level 5 --ssds dev0,dev1,dev2 --logs log --force --dry-run --json
is "$(json 'd["dry_run"], d["ssds"][0]["destroys"][:8], "destroys" in d["ssds"][1], d["survives"]["failures"], d["array"]["capacity_bytes"] > 0')" "(True, 'a member', False, 1, True)"
is "$(sha256sum dev? log)" "$before"
untouched bad run 0 "$EPLOG" create bad "${SMALL[@]}" --force --dry-run
has "destroys +$WORK/bad/ssd0: a member \(ssd0\) of the EPLOG array 'array'"
has "removes +$WORK/bad/ssd0"
holds_data bad

say "all is well"
