#!/usr/bin/env bash
# `make run`: an array to play with in ./array, mounted on ./mnt. Run again it only mounts.
#
#   run.sh PATH-TO-EPLOG
set -euo pipefail
eplog=$(realpath "$1")
cd "$(dirname "$0")/.."
array=./array
mnt=./mnt

if [ ! -c /dev/fuse ]; then
  echo "There is no /dev/fuse here: load the fuse module, or give the container that device." >&2
  exit 1
fi

# Six data and two parity chunks a stripe on eight SSDs, and two log devices: all of them files, 1.25 GiB together.
if [ ! -e "$array/array.toml" ]; then
  "$eplog" create "$array" --level 6 --ssds 8 --logs 2 --device-size 128M --log-size 128M
fi

# A mount whose daemon was killed is not served any more: mount takes its place.
if mountpoint -q "$mnt" 2>/dev/null && ls "$mnt" >/dev/null 2>&1; then
  echo "$array is mounted on $mnt already."
else
  "$eplog" mount "$array" "$mnt"
fi

if [ -z "$(ls "$mnt")" ]; then
  "$eplog" volume create "$array" disk 512M
fi

shown=${eplog#"$PWD"/}
cat <<END

Each file in $mnt is a volume, a disk of the array:
$(ls -lh "$mnt" | sed -e 1d -e 's/^/    /')

Things to try:
    $shown status $array                 what the array holds, what it wrote, what it would survive
    fio --name=try --filename=$mnt/disk --size=256M --rw=randwrite --bs=4k --direct=1 --ioengine=io_uring --iodepth=16
    mkfs.ext4 -q $mnt/disk && mkdir -p /tmp/try && mount -o loop $mnt/disk /tmp/try      (and: umount /tmp/try)
    $shown commit $array                 bring the parity on the SSDs up to date
    make umount                             flush everything and stop
    $shown --help
END
