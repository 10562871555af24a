#!/usr/bin/env bash
# bench/paper --quick: every experiment runs, and says what must hold on any head of the workloads.
#
#   paper_test.sh PATH-TO-EPLOG
set -u
EPLOG=$(realpath "$1")
HERE=$(realpath "$(dirname "$0")")
WORK=$(mktemp -d "${TMPDIR:-/tmp}/eplog-paper.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
cd "$WORK" || exit 1

python3 "$HERE/../../bench/paper" --eplog "$EPLOG" --quick --cache cache.json --output paper.md 2>err || {
  tail -3 err
  exit 1
}
python3 - <<'PYTHON'
import json
import re
import sys

text = open("paper.md", encoding="utf-8").read()
faults = []
for title in ("Write traffic", "S1", "S2", "S3", "S4", "S5", "S6", "S8", "S9", "Collections", "Real traces"):
    part = re.search(rf"^## {title}.*?(?=^## |\Z)", text, re.M | re.S)
    if part is None or not re.search(r"^\|.*\d|^Not run", part.group(), re.M):
        faults.append(f"nothing under {title}")
faults += [f"{word} in it" for word in ("nan", "inf", "None") if re.search(rf"\b{word}\b", text)]
runs = json.load(open("cache.json", encoding="utf-8"))
compared = 0
for key, run in runs.items():
    policies = run.get("policies", {}) if isinstance(run, dict) else {}
    # Without commits and buffers EPLOG as its paper has it writes the chunks of the requests, and nothing else.
    if {"md", "paper", "eplog"} <= policies.keys() and "--commit-every off" in key:
        compared += 1
        paper, eplog, md = (policies[name] for name in ("paper", "eplog", "md"))
        if paper["ssd_parity_bytes"] != 0:
            faults.append(f"parity without commits: {key}")
        if eplog["ssd_data_bytes"] != paper["ssd_data_bytes"]:
            faults.append(f"the policies differ in data: {key}")
        if not eplog["ssd_bytes_total"] < md["ssd_bytes_total"]:
            faults.append(f"nothing is saved: {key}")
if compared < 7:
    faults.append(f"only {compared} runs to compare")
print("\n".join(faults) or f"all is well: {len(runs) - 1} runs")
sys.exit(bool(faults))
PYTHON
