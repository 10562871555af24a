#!/usr/bin/env python3
"""Commits numbered rows to a PostgreSQL server, and checks them.

write SOCKET-DIRECTORY RECORD CLIENT SEED MOUNT
                    transactions of one or several rows, and now and then a CHECKPOINT, until killed or the server is gone. RECORD,
                    which lies outside the array, gets the last number of a transaction once COMMIT has returned and the
                    daemon that serves MOUNT was seen alive after that: an fsync that joins a transaction of the file
                    system that has just failed, since the daemon was killed, can return success.
check SOCKET-DIRECTORY RECORD...
                    RECORD ends in ".CLIENT". Prints how many rows were verified. Exit status 42: one that was committed
                    is not there, or a row is wrong.
"""
import hashlib
import os
import random
import subprocess
import sys

LOST = 42


def checksum(client, number):
    return hashlib.blake2b(b"%s %d" % (client.encode(), number), digest_size=16).hexdigest()


class Session:
    """psql, and what it answers."""

    def __init__(self, socket):
        self.psql = subprocess.Popen(
            ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", socket, "-U", "postgres", "postgres"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, statements):
        """The lines of the answer; an error ends psql, and us."""
        self.psql.stdin.write(statements + "\n\\echo end-of-answer\n")
        self.psql.stdin.flush()
        lines = []
        while True:
            line = self.psql.stdout.readline()
            if not line:
                raise OSError("psql has ended")
            if line == "end-of-answer\n":
                return lines
            lines.append(line.rstrip("\n"))


def write(socket, record_path, client, seed, mountpoint):
    rng = random.Random(seed)
    record = os.open(record_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    session = Session(socket)
    session.run("CREATE TABLE IF NOT EXISTS row_%s (number integer PRIMARY KEY, filler text, checksum text);" % client)
    number = int(session.run("SELECT coalesce(max(number), 0) FROM row_%s;" % client)[0])
    while True:
        rows = []
        for _ in range(rng.choice([1, 1, 1, 10, 40])):
            number += 1
            rows.append("(%d, '%s', '%s')" % (number, "x" * rng.choice([10, 200, 1500]), checksum(client, number)))
        session.run("BEGIN; INSERT INTO row_%s VALUES %s; COMMIT;" % (client, ", ".join(rows)))
        os.statvfs(mountpoint)  # answered by the daemon, or an error
        os.write(record, b"%d\n" % number)
        if rng.random() < 0.03:
            session.run("CHECKPOINT;")


def lost(what):
    print(what, file=sys.stderr)
    sys.exit(LOST)


def check(socket, *records):
    session = Session(socket)
    total = 0
    for path in records:
        client = path.rsplit(".", 1)[1]
        with open(path, encoding="utf-8") as lines:
            committed = max((int(line) for line in lines), default=0)
        if not committed:
            continue
        rows = session.run("SELECT number, checksum FROM row_%s ORDER BY number;" % client)
        if len(rows) < committed:
            lost("client %s: row %d was committed, but there are only %d" % (client, committed, len(rows)))
        for place, row in enumerate(rows, 1):
            if row != "%d|%s" % (place, checksum(client, place)):
                lost("client %s: row %d is wrong: %s" % (client, place, row))
        total += len(rows)
    print(total)


def main():
    verb, arguments = sys.argv[1], sys.argv[2:]
    if verb == "check":
        try:
            check(*arguments)
        except OSError:
            lost("a query fails")
    else:
        try:
            write(*arguments)
        except OSError as error:  # the array below is gone
            sys.exit("client: %s" % error)


main()
