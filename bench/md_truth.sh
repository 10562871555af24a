#!/usr/bin/env bash
# Counts what real Linux MD sends to its members, for the streams of bench/streams and for traces, records it in
# bench/md_truth.json, and prints how `md` (src/baseline) compares. Then the table goes into docs/baselines.md.
#
#   md_truth.sh PATH-TO-MD_COUNTS
#
# Both sides get the same stream as a fio iolog. Three ways: one request in flight; 16, submitted together and waited for
# together; 16 as they come ("free"), which real MD does not repeat, so it runs REPEATS times.
#
# From the environment: LINUX_MD (../shared/tools/linux-md: runs fio on MD in a user-mode Linux, prints what its members
# received), TRACES (../shared/traces; what is not there is left out, by name), REPEATS (3), ONLY (a pattern of streams:
# the others keep what is recorded). Needs root, and Debian's user-mode-linux, mdadm and fio. Takes a quarter of an hour.
set -euo pipefail
cd "$(dirname "$0")/.."
COUNTS=$(realpath "$1")
LINUX_MD=${LINUX_MD:-../shared/tools/linux-md}
TRACES=${TRACES:-../shared/traces}
REPEATS=${REPEATS:-3}
ONLY=${ONLY:-*}
TRUTH=bench/md_truth.json
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

[ "$(id -u)" -eq 0 ] || { echo "SKIPPED: needs root, for a user-mode Linux on this machine's files"; exit 77; }
[ -x "$LINUX_MD" ] || { echo "SKIPPED: there is no $LINUX_MD"; exit 77; }

real() {  # LEVEL DEVICES CHUNK SIZE FIO-ARGUMENTS...: one JSON object
  local level=$1 devices=$2 chunk=$3 size=$4 members=$WORK/members
  shift 4
  "$LINUX_MD" --level "$level" --devices "$devices" --chunk "$chunk" --size "$size" --dir "$members" -- \
    --read_iolog="$WORK/iolog" --replay_no_stall=1 --replay_redirect=/dev/md0 "$@"
  rm -rf "$members"
}

measure() {  # NAME FILE COLUMNS CHUNK SIZE LEVEL MODE DEPTH
  local name=$1 file=$2 columns=$3 chunk=$4 size=$5 level=$6 mode=$7 depth=$8 repeats=1 fio
  # 6 + 1 and 6 + 2, as in the paper.
  local devices=$((level + 2))
  fio=(--iodepth="$depth")
  case $mode in
    batch) fio+=(--iodepth_batch_submit="$depth" --iodepth_batch_complete_min="$depth" --iodepth_batch_complete_max="$depth") ;;
    free) repeats=$REPEATS ;;
  esac
  "$COUNTS" iolog "$file" ${columns:+--columns "$columns"} --level "$level" --devices "$devices" --chunk "$chunk" \
    --size "$size" -o "$WORK/iolog"
  : >"$WORK/real"
  for ((i = 0; i < repeats; ++i)); do
    real "$level" "$devices" "$chunk" "$size" "${fio[@]}" >>"$WORK/real"
  done
  python3 - "$TRUTH" "$WORK/real" "$@" "$devices" <<'PYTHON'
import json, os, sys
truth, real, name, file, columns, chunk, size, level, mode, depth, devices = sys.argv[1:]
text, decoder, repeats = open(real, encoding="utf-8").read().strip(), json.JSONDecoder(), []
while text:
    one, end = decoder.raw_decode(text)
    repeats.append(one["members_total"])
    text = text[end:].strip()
run = {"stream": name, "file": os.path.relpath(file, "bench"), "columns": columns, "level": int(level),
       "devices": int(devices), "chunk_kib": int(chunk), "size_mib": int(size), "mode": mode, "depth": int(depth)}
same = lambda other: all(other[key] == value for key, value in run.items())
data = json.load(open(truth, encoding="utf-8")) if os.path.exists(truth) else {"runs": []}
data["measured"] = "Linux 6.1 MD in user-mode Linux, fresh array, --assume-clean, stripe_cache_size 256, libaio, O_DIRECT"
data["runs"] = [other for other in data["runs"] if not same(other)] + [dict(run, real=repeats)]
streams, modes = ["uniform", "mix", "sequential", "large", "msr", "fin1"], ["one", "batch", "free"]
data["runs"].sort(key=lambda r: (streams.index(r["stream"]), r["chunk_kib"], modes.index(r["mode"]), r["level"]))
open(truth, "w", encoding="utf-8").write(json.dumps(data, indent=1) + "\n")
PYTHON
  echo "measured: $name, RAID-$level, chunk $chunk KiB, $depth in flight ($mode)"
}

stream() {  # NAME FILE COLUMNS SIZE WAYS: words of one batch free, and chunk64: one, with chunks of 64 KiB
  # shellcheck disable=SC2254
  case $1 in $ONLY) ;; *) return 0 ;; esac
  if [ ! -e "$2" ]; then
    echo "SKIPPED: $1, there is no $2"
    return 0
  fi
  local level way
  for level in 5 6; do
    for way in $5; do
      case $way in
        one) measure "$1" "$2" "$3" 4 "$4" "$level" one 1 ;;
        batch | free) measure "$1" "$2" "$3" 4 "$4" "$level" "$way" 16 ;;
        chunk64) measure "$1" "$2" "$3" 64 "$4" "$level" one 1 ;;
      esac
    done
  done
}

stream uniform bench/streams/uniform.toml "" 256 "one batch free"
stream mix bench/streams/mix.toml "" 256 "one batch free chunk64"
stream sequential bench/streams/sequential.toml "" 256 "one batch free"
stream large bench/streams/large.toml "" 256 "one batch free chunk64"
stream msr "$TRACES/msr.cut.per_10k.rw_20_80.105.trace" "time_ms,skip,offset,size,op:1=r" 512 "one batch free chunk64"
stream fin1 "$TRACES/fin1.trace.xz" "time_ms,disk,lba512,pages4k,op:0=w" 256 "one batch free"

"$COUNTS" table "$TRUTH" >"$WORK/table"
cat "$WORK/table"
python3 - docs/baselines.md "$WORK/table" <<'PYTHON'
import sys
begin, end = "<!-- made by bench/md_truth.sh: begin -->\n", "<!-- made by bench/md_truth.sh: end -->"
text = open(sys.argv[1], encoding="utf-8").read()
before, rest = text.split(begin)
after = rest.split(end)[1]
open(sys.argv[1], "w", encoding="utf-8").write(before + begin + open(sys.argv[2], encoding="utf-8").read() + end + after)
PYTHON
