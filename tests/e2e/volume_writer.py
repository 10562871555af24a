#!/usr/bin/env python3
"""Writes blocks to a volume with nothing between, and knows which of them may never be older again.

write VOLUME RECORD WRITER WRITERS SEED   writes its share of the volume until it is killed: runs of blocks, direct, synchronous
                                          by O_DSYNC or by fsync, or buffered; what was called durable goes to RECORD
check VOLUME RECORD...                    every block must be whole, and as new as RECORD says; prints how many were looked at
"""
import mmap
import os
import random
import struct
import sys
import time

BLOCK = 4096
LONGEST = 24  # blocks in a run
HEAD = struct.Struct("<QQ")  # which block, and a version that only grows


def content(block, version):
    head = HEAD.pack(block, version)
    return head * (BLOCK // HEAD.size)


def page_of(data):
    page = mmap.mmap(-1, len(data))  # aligned, as direct writes need it
    page[:] = data
    return page


def write(path, record_path, writer, writers, seed):
    writer, writers = int(writer), int(writers)
    rng = random.Random(seed)
    flags = [os.O_DIRECT | os.O_DSYNC, os.O_DIRECT, 0][writer % 3]
    fd = os.open(path, os.O_WRONLY | flags)
    record = os.open(record_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    share = os.stat(path).st_size // BLOCK // writers
    hot = rng.sample(range(share), min(share, 40))
    while True:
        lines = []
        for _ in range(1 if flags & os.O_DSYNC else rng.randint(1, 12)):
            length = rng.choice([1, 1, 1, 2, 3, LONGEST])
            first = writer * share + min(rng.choice(hot) if rng.random() < 0.5 else rng.randrange(share), share - length)
            version = time.time_ns()
            data = b"".join(content(block, version) for block in range(first, first + length))
            if os.pwrite(fd, page_of(data), first * BLOCK) != len(data):
                sys.exit("a short write")
            lines.append("%d %d %d\n" % (first, length, version))
        if not flags & os.O_DSYNC:
            os.fsync(fd)
        os.write(record, "".join(lines).encode())


def check(path, *records):
    newest = {}
    for record in records:
        with open(record, encoding="ascii") as lines:
            for line in lines:
                if not line.endswith("\n"):
                    break  # killed while it was written
                first, length, version = map(int, line.split())
                for block in range(first, first + length):
                    newest[block] = max(newest.get(block, 0), version)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    page = mmap.mmap(-1, BLOCK)
    wrong = []
    for block in range(os.stat(path).st_size // BLOCK):
        if os.preadv(fd, [page], block * BLOCK) != BLOCK:
            wrong.append("block %d: a short read" % block)
            continue
        found, version = HEAD.unpack_from(page)
        if page[:] != (content(block, version) if version else bytes(BLOCK)):
            wrong.append("block %d is not whole: it begins as version %d of block %d" % (block, version, found))
        elif version < newest.get(block, 0):
            wrong.append("block %d has version %d, and %d was durable" % (block, version, newest[block]))
    if wrong:
        sys.exit("%d blocks are wrong, first: %s" % (len(wrong), wrong[0]))
    print(len(newest))


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](*sys.argv[2:])
