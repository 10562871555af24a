#!/usr/bin/env python3
"""Commits numbered rows to a database, and checks them.

write DATABASE RECORD SEED JOURNAL MOUNT [PAUSE]
                                    transactions of one or several rows until killed or a call fails, so many seconds between them. RECORD, which lies outside the
                                    array, gets the last number of a transaction once COMMIT has returned and the daemon
                                    that serves MOUNT was seen alive after that: fsync can return success when the daemon
                                    has just been killed (the file system's transaction failed, and it was too late to
                                    hear of that).
check DATABASE RECORD               prints how many commits were verified. Exit status 42: one is lost or wrong.

synchronous=FULL makes a commit durable with the journal modes WAL and TRUNCATE. (With DELETE it would need EXTRA: the removal
of the journal is the commit, and only EXTRA syncs the directory.)
"""
import hashlib
import os
import random
import sqlite3
import sys
import time

LOST = 42


def payload(number):
    """The same for the same number, 10 to 9000 bytes."""
    rng = random.Random(number)
    return rng.randbytes(rng.choice([10, 200, 1000, 9000]))


def checksum(number, content):
    return hashlib.blake2b(b"%d " % number + content, digest_size=16).hexdigest()


def connect(path):
    return sqlite3.connect(path, isolation_level=None, timeout=30)


def write(path, record_path, seed, journal, mountpoint, pause="0"):
    rng = random.Random(seed)
    record = os.open(record_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    database = connect(path)
    mode = database.execute("PRAGMA journal_mode=" + journal).fetchone()[0]
    if mode != journal.lower():
        sys.exit("journal mode is " + mode)
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE IF NOT EXISTS row (number INTEGER PRIMARY KEY, content BLOB, checksum TEXT)")
    database.execute("CREATE INDEX IF NOT EXISTS by_checksum ON row (checksum)")
    number = database.execute("SELECT coalesce(max(number), 0) FROM row").fetchone()[0]
    while True:
        database.execute("BEGIN IMMEDIATE")
        for _ in range(rng.choice([1, 1, 1, 5, 40])):
            number += 1
            content = payload(number)
            database.execute("INSERT INTO row VALUES (?, ?, ?)", (number, content, checksum(number, content)))
        database.execute("COMMIT")
        os.statvfs(mountpoint)  # answered by the daemon, or an error
        os.write(record, b"%d\n" % number)
        time.sleep(float(pause))


def lost(what):
    print(what, file=sys.stderr)
    sys.exit(LOST)


def check(path, record_path):
    database = connect(path)
    try:
        found = database.execute("PRAGMA integrity_check").fetchall()
        if found != [("ok",)]:
            lost("integrity_check: %s" % found[:5])
        rows = database.execute("SELECT number, content, checksum FROM row ORDER BY number").fetchall()
    except sqlite3.DatabaseError as error:
        lost("the database cannot be read: %s" % error)
    with open(record_path, encoding="utf-8") as lines:
        commits = [int(line) for line in lines]
    if len(rows) < max(commits, default=0):
        lost("row %d was committed, but there are only %d" % (max(commits), len(rows)))
    for place, (number, content, total) in enumerate(rows, 1):
        if number != place or content != payload(number) or total != checksum(number, content):
            lost("row %d is wrong" % place)
    print(len(commits))


def main():
    verb, arguments = sys.argv[1], sys.argv[2:]
    if verb == "check":
        check(*arguments)
    else:
        try:
            write(*arguments)
        except (OSError, sqlite3.Error) as error:  # the array below is gone
            sys.exit("writer: %s" % error)


main()
