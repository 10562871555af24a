#!/usr/bin/env python3
"""Writes files that are known to be durable, and checks them.

write DIRECTORY RECORD ID SEED MOUNT
                                 creates, replaces and overwrites files until it is killed or a call fails. RECORD, which lies
                                 outside the array, gets a line "try NAME SUM" before a content may appear under a name
                                 and "safe NAME SUM" after fsync of the file and of its directory have returned, and the
                                 daemon that serves MOUNT was seen alive after that: an fsync that joins a transaction
                                 whose commit has just failed, since the daemon was killed, can return success.
churn FROM TO                    copies a tree and removes the copy again and again, nothing of it synced.
note DIRECTORY RECORD            records every file below DIRECTORY as it is now, as safe.
check DIRECTORY RECORD...        prints how many safe files were verified. A file must hold its last safe content or one
                                 that was tried after it. Exit status 42: a file is lost or wrong.
"""
import hashlib
import os
import random
import shutil
import sys

LOST = 42
MOST_FILES = 500  # of a writer: the file system must not get full


def checksum(content):
    return hashlib.blake2b(content, digest_size=16).hexdigest()


class Record:
    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def line(self, *words):
        os.write(self.fd, (" ".join(words) + "\n").encode())


def sync_directory(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def put(path, content):
    with open(path, "wb", buffering=0) as file:
        view = memoryview(content)
        while view:
            view = view[file.write(view):]
        os.fsync(file.fileno())


def write(directory, record_path, writer, seed, mountpoint):
    rng = random.Random(seed)
    record = Record(record_path)
    own = os.path.join(directory, "writer" + writer)
    os.makedirs(own, exist_ok=True)
    sync_directory(directory)
    names = sorted(name for name in os.listdir(own) if not name.endswith(".new"))
    count = 0
    while True:
        content = rng.randbytes(rng.choice([100, 4096, 5000, 20000, 65536, 300000]))
        total = checksum(content)
        if names and (rng.random() < 0.3 or len(names) >= MOST_FILES):
            name = rng.choice(names)
        else:
            name = "%s-%06d" % (seed, count)
            count += 1
            names.append(name)
        key = os.path.join("writer" + writer, name)
        record.line("try", key, total)
        put(os.path.join(own, name + ".new"), content)
        os.rename(os.path.join(own, name + ".new"), os.path.join(own, name))
        sync_directory(own)
        os.statvfs(mountpoint)  # answered by the daemon, or an error
        record.line("safe", key, total)


def churn(source, copy):
    while True:
        shutil.copytree(source, copy, dirs_exist_ok=True)
        shutil.rmtree(copy)


def note(directory, record_path):
    record = Record(record_path)
    for root, _, files in os.walk(directory):
        for name in files:
            path = os.path.join(root, name)
            if not os.path.islink(path):
                with open(path, "rb") as file:
                    record.line("safe", os.path.relpath(path, directory).replace(" ", "%20"), checksum(file.read()))


def describe(content, total, ever):
    """What a wrong file holds, for who has to find out why."""
    blocks = [content[at:at + 4096] for at in range(0, len(content), 4096)]
    zeros = sum(not any(block) for block in blocks)
    known = "an earlier content" if total in ever else "a content that was never written as a whole"
    return "%s: %d bytes, %d of %d blocks all zero" % (known, len(content), zeros, len(blocks))


def check(directory, record_paths):
    allowed = {}  # name: [last safe content, tried after it ...]
    ever = {}
    for record_path in record_paths:
        with open(record_path, encoding="utf-8") as lines:
            for line in lines:
                kind, name, total = line.split()
                ever.setdefault(name, set()).add(total)
                if kind == "safe":
                    allowed[name] = [total]
                else:
                    allowed.setdefault(name, [None]).append(total)
    verified = 0
    wrong = []
    for name, totals in allowed.items():
        if totals[0] is None:  # never known to be safe
            continue
        try:
            with open(os.path.join(directory, name.replace("%20", " ")), "rb") as file:
                content = file.read()
        except OSError as error:
            wrong.append("%s: %s" % (name, error.strerror))
            continue
        found = checksum(content)
        if found not in totals:
            wrong.append("%s: content differs (%s)" % (name, describe(content, found, ever[name])))
        verified += 1
    if wrong:
        print("%d of %d files lost: %s" % (len(wrong), len(wrong) + verified, "; ".join(wrong[:10])), file=sys.stderr)
        sys.exit(LOST)
    print(verified)


def main():
    verb, arguments = sys.argv[1], sys.argv[2:]
    if verb == "check":
        check(arguments[0], arguments[1:])
    elif verb == "note":
        note(*arguments)
    else:
        try:
            churn(*arguments) if verb == "churn" else write(*arguments)
        except OSError as error:  # the array below is gone
            sys.exit("%s: %s" % (verb, error))


main()
