#!/usr/bin/env bash
# eplog replay as a person uses it: on simulated drives, on files, on an array that is there; its page; its refusals; and what
# the reliability calculator makes of its JSON.
#
#   replay_test.sh PATH-TO-EPLOG
set -u
EPLOG=$(realpath "$1")
HERE=$(realpath "$(dirname "$0")")
PROFILE=$HERE/../replay/small.toml
WORK=$(mktemp -d "${TMPDIR:-/tmp}/eplog-replay.XXXXXX")
trap 'cd /; rm -rf "$WORK"' EXIT
cd "$WORK" || exit 1

# shellcheck source=tests/e2e/asserts.sh
source "$HERE/asserts.sh"

say "== on simulated drives, twice the same"
run 0 "$EPLOG" replay "$PROFILE" --prefill --precondition --policy eplog,paper,md,pl --report page --json
cp out first.json
check 'all(p[name]["requests"] == p["md"]["requests"] >= 12000 and p[name]["iops"] > 0 and p[name]["erases"] is not None for name in ("eplog","paper","md","pl"))'
check 'p["eplog"]["ssd_bytes_total"] == sum(p["eplog"]["ssd_bytes"]) < p["md"]["ssd_bytes_total"]'
grep -q '<svg' page/index.html || fail "the page has no pictures"
grep -Eq 'src=|href=' page/index.html && fail "the page fetches something"
run 0 "$EPLOG" replay "$PROFILE" --prefill --precondition --policy eplog,paper,md,pl --json
cmp -s out first.json || fail "the same replay gave other numbers"

say "== the reliability calculator takes it"
run 0 "$EPLOG" mttdl --from first.json --json
alpha=$(python3 -c 'import json; print(json.load(open("first.json"))["alpha"])')
check "abs(d['inputs']['alpha'] - $alpha) < 1e-12 and d['inputs']['ssds'] == 8 and d['origins']['alpha'] == 'first.json'"

say "== ordinary RAID as its owner may have set it up"
run 0 "$EPLOG" replay "$PROFILE" --prefill --policy md --flush-every 500 --json
cp out direct.json
run 0 "$EPLOG" replay "$PROFILE" --prefill --policy md --flush-every 500 --page-cache 16M --json
cp out cached.json
run 0 "$EPLOG" replay "$PROFILE" --prefill --policy md --flush-every 500 --baseline-chunk 64K --json
cp out wide.json
check 'd["settings"]["baseline_chunk_bytes"] == 65536 and d["settings"]["chunk_bytes"] == 4096' wide.json
python3 - <<'PYTHON' || fail "page cache or larger chunks change something else than they should"
import json, sys
direct, cached, wide = (json.load(open(f"{name}.json"))["policies"]["md"] for name in ("direct", "cached", "wide"))
same = all(run["user_bytes_written"] == direct["user_bytes_written"] for run in (cached, wide))
# Requests of several pages lie in one stripe where chunks are pages, in as many where they are larger.
sys.exit(not (same and cached["ssd_bytes_total"] < direct["ssd_bytes_total"] < wide["ssd_bytes_total"]))
PYTHON
refused 2 'baseline-chunk 3K' "$EPLOG" replay "$PROFILE" --baseline-chunk 3K
refused 2 'page-cache lots' "$EPLOG" replay "$PROFILE" --page-cache lots

say "== on files"
mkdir disk
run 0 "$EPLOG" replay "$PROFILE" --prefill --policy eplog,md,pl --devices file:disk --log-size 256M --json
cp out files.json
check 'd["settings"]["devices"] == "file" and all(p[name]["iops"] > 0 for name in ("eplog","md","pl"))'
[ -z "$(ls -A disk)" ] || fail "left in disk: $(ls disk)"
# One request at a time depends on no clock.
run 0 "$EPLOG" replay "$PROFILE" --prefill --policy paper,md --queue-depth 1 --commit-every 500 --devices file:disk --log-size 256M --json
cp out files.json
run 0 "$EPLOG" replay "$PROFILE" --prefill --policy paper,md --queue-depth 1 --commit-every 500 --log-size 256M --json
check 'all(p[name][what] == other[name][what] > 0 for other in [json.load(open("files.json"))["policies"]] for name in ("paper","md") for what in ("ssd_data_bytes","ssd_parity_bytes"))'
refused 1 'there is no directory nowhere' "$EPLOG" replay "$PROFILE" --devices file:nowhere
touch disk/eplog-replay-eplog-ssd0
refused 1 'eplog-replay-eplog-ssd0' "$EPLOG" replay "$PROFILE" --policy eplog --devices file:disk --log-size 256M
[ -e disk/eplog-replay-eplog-ssd0 ] && [ ! -s disk/eplog-replay-eplog-ssd0 ] || fail "a file of somebody else's was touched"
rm disk/eplog-replay-eplog-ssd0

say "== on an array that is there"
run 0 "$EPLOG" create demo --level 6 --ssds 6 --logs 2 --device-size 64M --log-size 64M --sparse
run 0 "$EPLOG" volume create demo mine 8M
run 0 "$EPLOG" volume list demo --json
cp out volumes.json
run 0 "$EPLOG" replay "$PROFILE" --prefill --policy eplog --devices demo --json
check 'd["settings"]["devices"] == "array" and d["settings"]["ssds"] == 6 and len(p["eplog"]["ssd_bytes"]) == 6'
check 'sum(p["eplog"]["ssd_bytes"]) == p["eplog"]["ssd_data_bytes"] + p["eplog"]["ssd_parity_bytes"] + p["eplog"]["ssd_metadata_bytes"]'
run 0 "$EPLOG" volume list demo --json
cmp -s out volumes.json || fail "the volumes are not what they were: $(cat out)"
run 0 "$EPLOG" check demo
refused 2 'policy eplog' "$EPLOG" replay "$PROFILE" --devices demo
refused 2 'eplog fail' "$EPLOG" replay "$PROFILE" --policy eplog --devices demo --fail ssd1
refused 2 'file:DIR' "$EPLOG" replay "$PROFILE" --devices simm,ulated

say "== traces that are none"
: >empty.trace
head -c 3000 /dev/urandom >binary.trace
xz -c "$PROFILE" 2>/dev/null | head -c 100 >cut.trace.xz
for file in empty.trace binary.trace cut.trace.xz missing.trace; do
  "$EPLOG" replay $file >out 2>err && fail "$file was taken for a trace"
  [ "$(wc -l <err)" -eq 1 ] || fail "not one line for $file: $(cat err)"
  grep -q "$file" err || fail "the message does not name $file: $(cat err)"
done

if [ $FAILURES -ne 0 ]; then
  say "$FAILURES failures"
  exit 1
fi
say "all is well"
