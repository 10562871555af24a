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
    # what the array holds, what it wrote, what it would survive
    $shown status $array
    # write something and see that again
    dd if=/dev/urandom of=$mnt/disk bs=4k count=1000 oflag=direct conv=notrunc,fsync
    # a file system on it (umount /tmp/try ends it)
    mkfs.ext4 -q -F $mnt/disk && mkdir -p /tmp/try && mount -o loop $mnt/disk /tmp/try
    # bring the parity on the SSDs up to date
    $shown commit $array
    # flush everything and stop
    make umount
The tour in README.md goes on from here; $shown --help tells the rest.
END
