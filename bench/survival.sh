#!/usr/bin/env bash
# What survival costs, on a 6+2 array of files on a disk, everything with direct I/O and through the mount where there is a
# foreground. One table; each figure is a ratio of two measurements that follow each other within the same round, so that a
# disk that is faster or slower for a while is so for both; medians of several rounds. Ends with one line of JSON.
#
#   degraded reads   random 4 KiB reads a second with one SSD lost / with none
#   rebuild          (bytes read + bytes written by a rebuild) a second / what fio gets when it reads the same files
#                    sequentially and writes another one, k bytes read for each written, in requests of 1 MiB
#   p99              99th percentile of a steady moderate load, half reads and half writes of 4 KiB, while a replaced SSD
#                    is being rebuilt / while it is not
#   scrub            bytes read by a scrub a second / what fio gets when it reads the same files sequentially
#   recovery         seconds from `eplog mount` until it returns, after kill -9 of the daemon of an array that lacks an
#                    SSD, with some 900 MiB of log since the last checkpoint
#
#   survival.sh PATH-TO-EPLOG
#
# From the environment: ROUNDS (3), SECONDS_EACH (10), VOLUME_MIB (4096), AGED (0; 1: each chunk has been overwritten at
# random before, so that nothing lies side by side any more), RATE (2000: requests a second of the moderate load), DEPTH (32),
# BARS (0; 1: exit status 1 if one is missed), TMPDIR (on the disk to measure). Needs three times the volume of room.
set -euo pipefail
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "$0")/../tests/e2e/lib.sh" "$1"
need_fuse
need_programs fio python3 bc
make_work
ROUNDS=${ROUNDS:-3}
SECONDS_EACH=${SECONDS_EACH:-10}
VOLUME_MIB=${VOLUME_MIB:-4096}
AGED=${AGED:-0}
RATE=${RATE:-2000}
DEPTH=${DEPTH:-32}
BARS=${BARS:-0}
readonly DATA=6 SSDS=8
SSD_MIB=$((VOLUME_MIB / 4))
LOG_MIB=$((VOLUME_MIB * 3 / 8))
RESULTS=$WORK/results
NEW=0  # replacements so far

note() { echo "$1 ${2:?$1 was not measured}" >>"$RESULTS"; }  # NAME VALUE
now() { date +%s.%N; }
load_average() { cut -d ' ' -f 1 /proc/loadavg; }
look() { "$EPLOG" status "$ARRAY" --json >"$WORK/status.json" || [ $? -eq 3 ] || die "status"; }

of_status() {  # EXPRESSION over `d`
  look
  python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
print(eval(sys.argv[2]))' "$WORK/status.json" "$1"
}

bytes_moved() {  # read by all SSDs (a replacement counts from 0), written by repairs
  of_status '(sum(x["bytes_read"] for x in d["devices"] if x["role"] == "ssd" and x["state"] == "ok"),
    d["traffic"]["ssd_repair_bytes"])' | tr -d '(,)'
}

# Processor time that the daemon has used, in seconds: on a busy machine what it says is truer than the clock.
cpu() { awk -v ticks="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print ($12 + $13) / ticks }' "/proc/$DAEMON/stat"; }
per_second() { echo "scale=6; ($1) / ($2)" | bc; }  # AMOUNT SECONDS

all_ok() { [ "$(of_status 'all(x["state"] == "ok" for x in d["devices"])')" = True ]; }

# fio with what all runs share; its document is in $WORK/fio.json.
fio_run() {  # OPTION...
  fio --direct=1 --ioengine=io_uring --norandommap --randrepeat=0 --allow_file_create=0 --output-format=json \
    --output="$WORK/fio.json" "$@" || die "fio"
}

of_fio() {  # EXPRESSION over `jobs`
  python3 -c 'import json, sys
text = open(sys.argv[1]).read()
jobs = json.loads(text[text.index("{"):])["jobs"]
print(eval(sys.argv[2]))' "$WORK/fio.json" "$1"
}

random_reads() {  # reads a second
  fio_run --name=reads --filename="$MNT/volume" --rw=randread --bs=4k --iodepth="$DEPTH" --time_based --runtime="$SECONDS_EACH"
  of_fio 'jobs[0]["read"]["iops"]'
}

# Whichever of reads and writes is slower.
moderate_p99() {  # SECONDS; microseconds
  fio_run --name=moderate --filename="$MNT/volume" --rw=randrw --bs=4k --iodepth=4 --time_based --runtime="$1" \
    --rate_iops=$((RATE / 2)),$((RATE / 2))
  of_fio 'max(jobs[0][x]["clat_ns"]["percentile"]["99.000000"] for x in ("read", "write")) / 1000'
}

# Bytes a second of everything together, from the first byte to the last: so many SSDs are read, by one process, as the
# daemon is one, so that a busy machine is fair to both; and another writes the scratch file if asked to.
plain() {  # SSDS [write]
  local paths each=$((SSD_MIB * 3 / 4)) arguments=()
  paths=$(of_status "':'.join([x['path'] for x in d['devices'] if x['role'] == 'ssd' and x['state'] == 'ok'][:$1])")
  arguments+=(--name=read --filename="$paths" --rw=read --size=$((each * $1))M --iodepth=$((4 * $1)))
  if [ "${2:-}" = write ]; then
    arguments+=(--name=write --filename="$WORK/scratch" --rw=write --size=${each}M --iodepth=4)
  fi
  fio_run --bs=1M --offset=$((SSD_MIB / 8))M --file_service_type=roundrobin "${arguments[@]}"
  of_fio 'sum(j["read"]["io_bytes"] + j["write"]["io_bytes"] for j in jobs) * 1000 / max(j["job_runtime"] for j in jobs)'
}

new_file() {  # written out, as a device is
  NEW=$((NEW + 1))
  REPLACEMENT=$ARRAY/new$NEW
  dd if=/dev/zero of="$REPLACEMENT" bs=1M count="$SSD_MIB" oflag=direct status=none
}

join() {  # DEVICE
  "$EPLOG" replace "$ARRAY" "$1" "$REPLACEMENT" >/dev/null || die "replace"
}

fail_ssd() {  # DEVICE: its file goes, so that room stays
  local path
  path=$(of_status "next(x['path'] for x in d['devices'] if x['name'] == '$1')")
  "$EPLOG" fail "$ARRAY" "$1" >/dev/null || die "fail"
  rm "$path"
}

settle() {
  "$EPLOG" commit "$ARRAY" >/dev/null 2>&1 || die "commit"
  "$EPLOG" checkpoint "$ARRAY" >/dev/null 2>&1 || die "checkpoint"
}

# Runs COMMAND..., notes how many bytes were moved meanwhile a second of the clock and of the processor.
measure_moved() {  # NAME COMMAND...
  local name=$1 before after cpu_before cpu_after read0 written0 read1 written1 moved
  shift
  read -r read0 written0 <<<"$(bytes_moved)"
  cpu_before=$(cpu)
  before=$(now)
  "$@"
  after=$(now)
  cpu_after=$(cpu)
  read -r read1 written1 <<<"$(bytes_moved)"
  moved=$((read1 - read0 + written1 - written0))
  note "$name" "$(per_second "$moved" "$after - $before")"
  note "${name}_of_processor" "$(per_second "$moved" "$cpu_after - $cpu_before")"
  note "${name}_written_mib" $(((written1 - written0) / 1048576))
}

scrub() { "$EPLOG" scrub "$ARRAY" >/dev/null 2>&1 || die "scrub"; }

rebuild() {  # DEVICE
  join "$1"
  until all_ok; do sleep 0.02; done
}

measure_scrub() {
  local base
  base=$(plain $SSDS)
  note scrub_base "$base"
  measure_moved scrub scrub
}

measure_rebuild() {  # DEVICE, which is failed
  local base
  new_file
  base=$(plain $DATA write)
  note rebuild_base "$base"
  measure_moved rebuild rebuild "$1"
}

# The load must end before the rebuild does; what of it was done then is shown.
measure_p99() {  # DEVICE
  fail_ssd "$1"
  new_file
  join "$1"
  local p99 percent
  p99=$(moderate_p99 "$SECONDS_EACH")
  percent=$(of_status '(d["rebuild"] or {"percent": 100})["percent"]')
  if [ "$percent" = 100 ]; then
    say "(the rebuild ended before the load: SECONDS_EACH is too long for this disk)"
  else
    note rebuilt_percent_beside_load "$percent"
    note p99_rebuilding "$p99"
  fi
  until all_ok; do sleep 0.2; done
}

# A checkpoint comes by itself after 1 GiB of log: it is filled from just after one to some way before the next.
fill_log() {
  local logged='d["traffic"]["log_chunk_bytes"] + d["traffic"]["log_header_bytes"]' base checkpoints appended=0
  settle
  base=$(of_status "$logged")
  checkpoints=$(of_status 'd["traffic"]["checkpoints"]')
  while [ $appended -lt $((1800 * 1048576)) ]; do  # of both log devices
    fio_run --name=log --filename="$MNT/volume" --rw=randwrite --bs=4k --iodepth="$DEPTH" --size="${VOLUME_MIB}M" --io_size=32M
    appended=$(($(of_status "$logged") - base))
    if [ "$(of_status 'd["traffic"]["checkpoints"]')" != "$checkpoints" ]; then
      say "(a checkpoint came early: the log is too small)"
      break
    fi
  done
  LOGGED_MIB=$((appended / 2 / 1048576))
  note log_mib $LOGGED_MIB
}

# An opening leaves the log as it is, so the next kill meets the same.
measure_recovery() {
  local before logs
  logs=$(of_status "':'.join([x['path'] for x in d['devices'] if x['role'] == 'log'])")
  kill_daemon
  cut_connection
  umount -l "$MNT"
  fio_run --name=logs --filename="$logs" --rw=read --bs=1M --iodepth=8 --file_service_type=roundrobin --size=$((2 * LOGGED_MIB))M
  note recovery_base "$(of_fio 'jobs[0]["job_runtime"] / 1000')"
  before=$(now)
  start_daemon --commit-idle off || die "mount: $(cat "$WORK/mount.err")"
  note recovery "$(per_second "$(now) - $before" 1)"
  note recovery_processor "$(cpu)"
  note recovery_told "$(of_status 'd["recovery"]["seconds"]')"
  note recovery_entries "$(of_status 'd["recovery"]["entries_replayed"]')"
}

create_array --level 6 --ssds $SSDS --logs 2 --device-size "${SSD_MIB}M" --log-size "${LOG_MIB}M"
"$EPLOG" volume create "$ARRAY" volume "${VOLUME_MIB}M" >/dev/null
start_daemon --commit-idle off || die "mount: $(cat "$WORK/mount.err")"
dd if=/dev/zero of="$WORK/scratch" bs=1M count="$SSD_MIB" oflag=direct status=none
fio_run --name=fill --filename="$MNT/volume" --size="${VOLUME_MIB}M" --rw=write --bs=768k --iodepth=4 --end_fsync=1
if [ "$AGED" -ne 0 ]; then
  fio --name=age --filename="$MNT/volume" --size="${VOLUME_MIB}M" --rw=randwrite --bs=4k --iodepth=$DEPTH --direct=1 \
    --ioengine=io_uring --output=/dev/null
fi
settle
for ((round = 1; round <= ROUNDS; ++round)); do
  note load "$(load_average)"
  ssd=ssd$((round % 6))
  measure_scrub
  value=$(moderate_p99 "$SECONDS_EACH")
  note p99_idle "$value"
  settle
  value=$(random_reads)
  note reads_base "$value"
  fail_ssd $ssd
  value=$(random_reads)
  note reads "$value"
  measure_rebuild $ssd
  measure_p99 ssd$(((round + 3) % 6))
  settle
  say "round $round of $ROUNDS after $(elapsed) s, load average $(load_average)"
done
stop_daemon
check_array
start_daemon --commit-idle off || die "mount: $(cat "$WORK/mount.err")"
# Last, since it leaves little side by side.
fail_ssd ssd7
fill_log
for ((round = 1; round <= ROUNDS; ++round)); do
  measure_recovery
done
python3 - "$RESULTS" "$AGED" "$BARS" <<'PYTHON'
import json, statistics, sys
rows = {}
for line in open(sys.argv[1], encoding="utf-8"):
    name, value = line.split()
    rows.setdefault(name, []).append(float(value))
missed = []
document = {"bench": "survival", "aged": sys.argv[2] == "1", "rounds": len(rows["reads"]), "load_average": rows["load"]}


def median(name):
    return statistics.median(rows[name])


def show(what, value, base, unit, scale, ratio, bar, at_least, ratios):
    good = ratio >= bar if at_least else ratio <= bar
    if not good:
        missed.append(what)
    print(f"{what:16} {base / scale:12.1f} {value / scale:12.1f} {unit:8} {ratio:7.2f}   {'>=' if at_least else '<='} {bar:<5} "
          f"{'' if good else 'MISSED'}   each: {' '.join(f'{x:.2f}' for x in ratios)}")
    document[what.replace(" ", "_")] = {"base": round(base), "value": round(value), "ratio": round(ratio, 3),
                                        "each": [round(x, 3) for x in ratios]}


def compare(what, name, base, unit, scale, bar, at_least=True):
    if name not in rows:
        print(f"{what:16} not measured")
        return
    ratios = [a / b for a, b in zip(rows[name], rows[base])]
    show(what, median(name), median(base), unit, scale, statistics.median(ratios), bar, at_least, ratios)


print(f"{'':16} {'without':>12} {'with':>12} {'':8} {'ratio':>7}   bar")
compare("degraded reads", "reads", "reads_base", "1/s", 1, 0.4)
compare("rebuild", "rebuild", "rebuild_base", "MiB/s", 1 << 20, 0.6)
compare("p99 rebuilding", "p99_rebuilding", "p99_idle", "us", 1, 3, False)
compare("scrub", "scrub", "scrub_base", "MiB/s", 1 << 20, 0.6)
seconds = median("recovery")
print(f"{'recovery':16} {'':12} {seconds:12.2f} s                  <= 5     {'' if seconds <= 5 else 'MISSED'}   "
      f"({median('log_mib'):.0f} MiB of log, {median('recovery_entries'):.0f} entries, "
      f"{median('recovery_processor'):.1f} s of processor time; fio reads that much of the log files in "
      f"{median('recovery_base'):.1f} s)")
if seconds > 5:
    missed.append("recovery")
document["recovery"] = {name: rows[name] for name in ("recovery", "recovery_base", "recovery_told", "recovery_processor", "recovery_entries", "log_mib")}
for name in ("rebuild_of_processor", "rebuild_written_mib", "scrub_of_processor"):
    document[name] = [round(value) for value in rows[name]]
print(f"a second of the daemon's processor time moves {median('rebuild_of_processor') / (1 << 20):.0f} MiB in a rebuild, "
      f"{median('scrub_of_processor') / (1 << 20):.0f} MiB in a scrub")
document["rebuilt_percent_beside_load"] = rows.get("rebuilt_percent_beside_load")
print(f"load average at the rounds: {' '.join(map(str, rows['load']))}"
      + ("; others were at work: repeat on a quiet machine" if max(rows["load"]) > 3 else ""))
print(json.dumps(document))
sys.exit(1 if missed and sys.argv[3] == "1" else 0)
PYTHON
