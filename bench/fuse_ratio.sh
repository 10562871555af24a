#!/usr/bin/env bash
# What the whole path costs: 4 KiB random writes at queue depth 32 through the mount of a 6+2 array of files, against the
# same on a plain file that was written before, on the same disk; O_DIRECT and io_uring both. The runs take turns, so that
# a disk that is faster or slower for a while is so for both. Prints a table, then one line of JSON.
#
#   fuse_ratio.sh PATH-TO-EPLOG
#
# From the environment: PAIRS (3), SECONDS_EACH (15), VOLUME_MIB (1024), SSD_MIB (three eighths of it: 44 % full; a quarter
# makes it 67 %), DEPTH (32), JOURNAL (full), AT_LEAST (0: no bar), TMPDIR (on the disk to measure). MOUNT_OPTIONS go to
# eplog mount.
set -euo pipefail
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "$0")/../tests/e2e/lib.sh" "$1"
need_fuse
need_programs fio python3
make_work
PAIRS=${PAIRS:-3}
SECONDS_EACH=${SECONDS_EACH:-15}
VOLUME_MIB=${VOLUME_MIB:-1024}
DEPTH=${DEPTH:-32}
JOURNAL=${JOURNAL:-full}
AT_LEAST=${AT_LEAST:-0}
SSD_MIB=${SSD_MIB:-$((VOLUME_MIB * 3 / 8))}
LOG_MIB=$((VOLUME_MIB / 2))

fill() {  # FILE
  fio --name=fill --filename="$1" --size="${VOLUME_MIB}M" --rw=write --bs=768k --direct=1 --ioengine=io_uring --iodepth=4 \
    --end_fsync=1 --output=/dev/null
}

measure() {  # FILE; writes a second, and the 99th percentile of latency in microseconds
  fio --name=measure --filename="$1" --size="${VOLUME_MIB}M" --rw=randwrite --bs=4k --direct=1 --ioengine=io_uring \
    --iodepth="$DEPTH" --norandommap --randrepeat=0 --time_based --runtime="$SECONDS_EACH" --output-format=json \
    --output="$WORK/fio.json"
  python3 - "$WORK/fio.json" <<'PYTHON'
import json, sys
text = open(sys.argv[1], encoding="utf-8").read()
write = json.loads(text[text.index("{"):])["jobs"][0]["write"]
print(round(write["iops"]), round(write["clat_ns"]["percentile"]["99.000000"] / 1000))
PYTHON
}

create_array --level 6 --ssds 8 --logs 2 --device-size "${SSD_MIB}M" --log-size "${LOG_MIB}M" --journal "$JOURNAL"
"$EPLOG" volume create "$ARRAY" volume "${VOLUME_MIB}M"
# shellcheck disable=SC2086
start_daemon ${MOUNT_OPTIONS:-} || die "mount: $(cat "$WORK/mount.err")"
fill "$MNT/volume"
fill "$WORK/plain"
"$EPLOG" status "$ARRAY" --json >"$WORK/before.json"
printf '%-6s %12s %12s %12s %12s\n' pair plain/s eplog/s plain_p99us eplog_p99us
: >"$WORK/pairs"
for ((pair = 1; pair <= PAIRS; ++pair)); do
  read -r plain plain_p99 <<<"$(measure "$WORK/plain")"
  read -r eplog eplog_p99 <<<"$(measure "$MNT/volume")"
  printf '%-6s %12s %12s %12s %12s\n' "$pair" "$plain" "$eplog" "$plain_p99" "$eplog_p99"
  echo "$plain $eplog" >>"$WORK/pairs"
done
"$EPLOG" status "$ARRAY" --json >"$WORK/status.json"
stop_daemon
check_array
python3 - "$WORK/pairs" "$WORK/before.json" "$WORK/status.json" "$DEPTH" "$JOURNAL" "$VOLUME_MIB" "$AT_LEAST" <<'PYTHON'
import json, statistics, sys
pairs = [tuple(map(float, line.split())) for line in open(sys.argv[1], encoding="utf-8")]
plain, eplog = (statistics.median(column) for column in zip(*pairs))
before, after = (json.load(open(path, encoding="utf-8"))["traffic"] for path in sys.argv[2:4])
depth, journal, volume_mib, at_least = sys.argv[4:8]


def grown(*names):
    return sum(after[name] - before[name] for name in names)


below = grown("ssd_data_bytes", "ssd_parity_bytes", "ssd_metadata_bytes", "log_chunk_bytes", "log_header_bytes")
ratio = eplog / plain
print(f"median: plain {plain:.0f}, eplog {eplog:.0f} writes a second; ratio {ratio:.2f}")
print(json.dumps({"bench": "fuse_ratio", "journal": journal, "queue_depth": int(depth), "volume_mib": int(volume_mib),
                  "plain_writes_per_second": plain, "eplog_writes_per_second": eplog, "ratio": round(ratio, 3), "pairs": pairs,
                  "device_bytes_per_user_byte": round(below / grown("user_bytes_written"), 2)}))
sys.exit(0 if ratio >= float(at_least) else 1)
PYTHON
