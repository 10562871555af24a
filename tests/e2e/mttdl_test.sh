#!/usr/bin/env bash
# eplog mttdl as a person and as a script use it: the paper's figures, every kind of output, measurements from a real
# array that was written to, pictures that real programs can read.
#
#   mttdl_test.sh PATH-TO-EPLOG
set -u
EPLOG=$(realpath "$1")
HERE=$(realpath "$(dirname "$0")")
WORK=$(mktemp -d "${TMPDIR:-/tmp}/eplog-mttdl.XXXXXX")
SKIPPED=()
cleanup() {
  cd /
  mountpoint -q "$WORK/mnt" 2>/dev/null && "$EPLOG" umount "$WORK/mnt" >/dev/null 2>&1
  rm -rf "$WORK"
}
trap cleanup EXIT
cd "$WORK" || exit 1

# shellcheck source=tests/e2e/asserts.sh
source "$HERE/asserts.sh"

say "== the paper's example"
run 0 "$EPLOG" mttdl
out_has '^MTTDL +4,924 years +1,779 years +2\.769$'
out_has 'default: the paper'
run 0 "$EPLOG" mttdl --json
check 'abs(d["ratio"] - 2.77) < 0.005 and abs(d["conventional"]["mttdl_years"] - 1778.6) < 0.05'
check 'abs(d["eplog"]["mttdl_years"] / d["eplog"]["closed_form_years"] - 1) < 1e-12'
check 'd["inputs"]["ssds"] == 10 and d["inputs"]["mu_ssd_per_year"] == 1e4'
run 0 "$EPLOG" mttdl --parity 2 --json
check 'abs(d["ratio"] - 2.82) < 0.005 and abs(d["conventional"]["mttdl_years"] / 8.893e6 - 1) < 1e-4'
run 0 "$EPLOG" mttdl --simulate --json --lives 50000
check 'all(d[s]["simulated"]["mttdl_years"]["low"] < d[s]["mttdl_years"] < d[s]["simulated"]["mttdl_years"]["high"] for s in ("eplog", "conventional"))'
cp out first
run 0 "$EPLOG" mttdl --simulate --json --lives 50000
cmp -s first out || fail "the same seed gave another result"

say "== what docs/reliability.md shows is what comes out"
python3 - "$EPLOG" "$HERE/../../docs/reliability.md" <<'PYTHON' || fail "docs/reliability.md is out of date"
import re, shlex, subprocess, sys
eplog, document = sys.argv[1:]
blocks = re.findall(r"```console\n\$ (eplog .*?)\n(.*?)```\n", open(document).read(), re.S)
assert len(blocks) >= 2, "no examples found"
for command, shown in blocks:
    out = subprocess.run([eplog] + shlex.split(command)[1:], capture_output=True, text=True).stdout
    assert out == shown, f"{command} prints:\n{out}"
PYTHON

say "== figure 4"
run 0 "$EPLOG" mttdl --fig4 --picture fig4.svg
out_has '^equal at +13\.65 +6\.75 +3\.279$'
out_has '^equal at +5\.033 +2\.855 +1\.453$'
python3 -c 'import xml.dom.minidom as m; d=m.parse("fig4.svg"); assert len(d.getElementsByTagName("path")) == 8' || fail "fig4.svg: not two panels of four lines"
cmp -s fig4.svg "$HERE/../../docs/pictures/mttdl-fig4.svg" || fail "docs/pictures/mttdl-fig4.svg is out of date"
run 0 "$EPLOG" mttdl --fig4 --json
check 'abs(d["levels"][0]["eplog"][1]["crossing"] - 6.75) < 0.005 and abs(d["levels"][1]["eplog"][1]["crossing"] - 2.86) < 0.006'
run 0 "$EPLOG" mttdl --fig4 --csv
[ "$(wc -l <out)" -eq 61 ] || fail "fig4 --csv: $(wc -l <out) lines"

say "== sweeps"
run 0 "$EPLOG" mttdl --sweep lambda-log=0.25:2.5:0.25,alpha=0.3,0.5,0.7 --picture sweep.svg
[ "$(wc -l <out)" -eq 31 ] || fail "sweep: $(wc -l <out) lines instead of a head and 30"
python3 -c 'import csv; r=list(csv.DictReader(open("out"))); assert abs(float(r[1]["ratio"])-2.7687) < 1e-4, r[1]' || fail "sweep: wrong CSV"
run 0 "$EPLOG" mttdl --sweep lambda-log=0.25:2.5:0.25,alpha=0.3,0.5,0.7 --json
check 'len(d["rows"]) == 30 and d["rows"][0]["at"] == {"lambda-log": 0.25, "alpha": 0.3}'

say "== scenarios"
cat >scenarios.toml <<'TOML'
ssds = 8
parity = 2
years = "5y"
[[scenario]]
name = "hard disks as log"
afr-log = "4%"
[[scenario]]
name = "good logs"
mttf-log = "2Mh"
TOML
run 0 "$EPLOG" mttdl --what-if scenarios.toml
out_has "^In 'hard disks as log' what matters most is"
out_has "^EPLOG lasts longest in 'good logs'"
run 0 "$EPLOG" mttdl --what-if scenarios.toml --json
check '[s["name"] for s in d["scenarios"]] == ["hard disks as log", "good logs"]'
sed -i 's/afr-log/afr-lgo/' scenarios.toml
refused 2 "scenarios.toml:6: there is no input 'afr-lgo'; did you mean 'afr-log'" "$EPLOG" mttdl --what-if scenarios.toml

say "== explanations and pictures"
run 0 "$EPLOG" mttdl --explain
out_has 'S2 -> S3 +\(n-1\)λs \+ λh'
run 0 "$EPLOG" mttdl --explain --json
check 'd["eplog"]["generator"][2] == ["μs", "0", "-(μs + (n-1)λs + λh)", "(n-1)λs + λh"]'
run 0 "$EPLOG" mttdl --graph chain.dot --parity 2
grep -q 'S4 (2,1)' chain.dot || fail "chain.dot lacks S4"
if command -v dot >/dev/null; then
  run 0 "$EPLOG" mttdl --graph chain.png
  [ "$(head -c 8 chain.png | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ] || fail "chain.png is no PNG"
else
  SKIPPED+=("graphs as PNG: there is no dot")
fi
if command -v rsvg-convert >/dev/null; then
  run 0 "$EPLOG" mttdl --fig4 --picture fig4.png
  [ "$(head -c 8 fig4.png | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ] || fail "fig4.png is no PNG"
else
  SKIPPED+=("PNG: there is no rsvg-convert")
fi
# Without the program that draws PNG: its package is named, and nothing is left behind.
mkdir -p bare && ln -sf "$EPLOG" bare/eplog
(PATH=$WORK/bare && eplog mttdl --fig4 --picture none.png >out 2>err)
grep -q 'apt-get install librsvg2-bin' err || fail "no word about librsvg2-bin: $(cat err)"
[ -z "$(find . -name 'none.png*')" ] || fail "left behind: $(find . -name 'none.png*')"
refused 1 'cannot write' "$EPLOG" mttdl --fig4 --picture no/such/dir/x.svg

say "== refusals"
refused 2 '^eplog mttdl: alpha must lie between' "$EPLOG" mttdl --alpha -1
refused 2 "alpha: 'nan' is not" "$EPLOG" mttdl --alpha nan
refused 2 'mu-ssd must be a rate above 0 a year' "$EPLOG" mttdl --mu-ssd 0
refused 2 'ssds must be a number from 2' "$EPLOG" mttdl --ssds 1
refused 2 'parity must be less than the number of SSDs' "$EPLOG" mttdl --ssds 3 --parity 3
refused 2 "did you mean '--alpha'" "$EPLOG" mttdl --alhpa 1
refused 2 'ask one' "$EPLOG" mttdl --fig4 --explain
refused 2 'end it in .svg or .png' "$EPLOG" mttdl --fig4 --picture x.gif
refused 1 'there is no' "$EPLOG" mttdl --from-array nowhere
refused 1 'cannot read nowhere.json' "$EPLOG" mttdl --from nowhere.json

say "== a replay, written by hand (replay_test.sh has a real one)"
cat >replay.json <<'JSON'
{"trace":"fin","settings":{},"policies":{"eplog":{"ssd_data_bytes":270,"ssd_parity_bytes":0,"ssd_metadata_bytes":0,"ssd_bytes":[34,34,34,34,34,34,33,33]},"md":{"ssd_data_bytes":270,"ssd_parity_bytes":250,"ssd_metadata_bytes":0}},"alpha":0.5192}
JSON
run 0 "$EPLOG" mttdl --from replay.json --parity 2 --json
check 'd["inputs"]["alpha"] == 0.5192 and d["origins"]["alpha"] == "replay.json" and d["inputs"]["ssds"] == 8'

say "== a real array"
if [ -c /dev/fuse ] && [ -w /dev/fuse ]; then
  "$EPLOG" create demo --level 6 --ssds 6 --logs 2 --device-size 32M --log-size 32M >/dev/null || fail "create"
  refused 2 'nothing has been written to it yet' "$EPLOG" mttdl --from-array demo
  "$EPLOG" volume create demo disk 32M >/dev/null && "$EPLOG" mount demo mnt >/dev/null || fail "mount"
  for block in $(seq 5 7 1400); do printf 'block %d' "$block"; done | dd of=mnt/disk bs=64k conv=notrunc,fsync status=none
  for block in 5 100 300 700 900; do
    dd if=/dev/urandom of=mnt/disk bs=4k count=1 seek=$block conv=notrunc oflag=direct status=none
  done
  run 0 "$EPLOG" mttdl --from-array demo --afr-ssd 1% --afr-log 3% --json
  cp out mttdl.json
  "$EPLOG" status demo --json >status.json
  python3 - <<'PYTHON' || fail "alpha is not that of the counters"
import json
d = json.load(open("mttdl.json"))
s = json.load(open("status.json"))["lifetime"]
alpha = (s["ssd_data_bytes"] + s["ssd_parity_bytes"] + s["ssd_metadata_bytes"]) / s["md_equivalent_ssd_bytes"]
assert 0.01 < alpha < 10 and d["inputs"]["ssds"] == 6 and d["inputs"]["parity"] == 2, d
assert abs(d["measured"]["alpha"] - d["inputs"]["alpha"]) < 1e-15, d
# Metadata may have been written between the two looks.
assert abs(d["inputs"]["alpha"] / alpha - 1) < 0.2, (d["inputs"]["alpha"], alpha)
PYTHON
  "$EPLOG" umount mnt >/dev/null
  run 0 "$EPLOG" mttdl --from-array demo --json
  check 'd["inputs"]["ssds"] == 6 and d["origins"]["alpha"] == "demo"'
else
  SKIPPED+=("a real array: there is no /dev/fuse to use")
fi

for reason in "${SKIPPED[@]:-}"; do [ -n "$reason" ] && say "SKIPPED: $reason"; done
[ $FAILURES -eq 0 ] || exit 1
say "passed"
