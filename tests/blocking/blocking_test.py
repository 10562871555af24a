#!/usr/bin/env python3
"""What runs on the engine's thread calls nothing that may block: looked up in the object files.

usage: blocking_test.py ALLOWED LIBRARY[:FILE,FILE...]...

All objects of a room's library are looked at, or those named. Every symbol that an object wants from elsewhere is compared with what may block: system calls on files, sockets and
processes, streams, sleeping, waiting for threads, and our own functions that do such things. Those that an object may
have all the same are in ALLOWED, each with the reason; * is for a file that runs elsewhere altogether.
"""
import re
import subprocess
import sys

# Of the C library; other spellings of the same (open64, __open_2, __read_chk) are told by their stem.
C = """
open openat creat fopen freopen fdopen stat lstat fstat fstatat statx statfs fstatfs statvfs fstatvfs access faccessat
read pread readv preadv write pwrite writev pwritev close fsync fdatasync sync syncfs sync_file_range rename renameat
renameat2 unlink unlinkat remove rmdir mkdir mkdirat mkdtemp mkstemp mknod mkfifo link symlink readlink realpath opendir
readdir scandir truncate ftruncate fallocate posix_fallocate ioctl fcntl flock lockf sendfile copy_file_range splice
wait waitpid waitid wait4 system popen pclose posix_spawn posix_spawnp execv execve execvp fork vfork
nanosleep clock_nanosleep usleep sleep pause sigwait sigtimedwait sigsuspend poll ppoll select pselect epoll_wait
connect accept accept4 recv recvfrom recvmsg send sendto sendmsg getaddrinfo gethostbyname
fread fwrite fputs fputc puts putchar printf fprintf vprintf vfprintf fflush fclose fgets getline perror
mount umount umount2 msync mlock mlockall pthread_join sem_wait getrandom syslog
""".split()
STEMS = set(C)
# As c++filt shows them.
CXX = re.compile(
    r"std::(filesystem::(?!.*path::)|basic_[io]?fstream|basic_filebuf|thread::join|condition_variable(_any)?::wait|"
    r"__atomic_futex_unsigned|(__1::)?this_thread::sleep|cout|cerr|clog)"
)
# Ours that do any of this, wherever they are called.
OURS = re.compile(
    r"eplog::(FileDevice::Open|LockFile|UnlockAndClose|WhyBlockDeviceBusy|CreateMemberFile|AppendEventLine|EventHook::(?:~?EventHook|Run)|"
    r"UnmountPath|SyncMount|DetachPath|PrepareMountpoint|ResolveMountpoint|ControlRequest|PrepareControlDirectory|"
    r"SideThread::Finish|ReadText|(?:ChangeArrayFile|ChangeInTime|IsAnothersByNow|WriteArrayFile|LoadArrayFile|IdentifySpare|IsSpareOf|ReadSuperblocks|ReadSuperblock(?=\(std::filesystem)|"
    r"ProbeDevice|OpenProbed|FindContent|WithJoinedSpares|LookAtSpares|OpenMembers?|AnyMember|AskServer|FindServer|"
    r"CheckCandidate|ResolveTyped|ResolveDevice|IsThere|LookAtArray|DeviceCloser::Wait(ForAll)?))(?=[(\[])"
)


def stem(name):
    name = name.split("@")[0]
    name = re.sub(r"^__(isoc\d+_)?", "", name)
    return re.sub(r"(_chk|_2|64|64_2|_nocancel)$", "", name)


def blocking(symbol):
    """The name under which a symbol is to be allowed, or None if it cannot block."""
    if "(" not in symbol and "::" not in symbol:
        name = stem(symbol)
        return name if name in STEMS else None
    # Of others' functions by name, not by what they are given.
    match = OURS.match(symbol) if symbol.startswith("eplog::") else CXX.search(symbol)
    return match.group(0) if match else None


def wanted(libraries):
    """{(room/file, name)} of everything that may block, and all objects."""
    found, objects = set(), set()
    for library in libraries:
        path, _, only = library.partition(":")
        room = re.search(r"libeplog_(\w+)\.a$", path).group(1)
        text = subprocess.run(["nm", "-u", "-C", path], check=True, capture_output=True, text=True).stdout
        source = None
        for line in text.splitlines():
            member = re.match(r"^(.*)\.o:$", line)
            symbol = re.match(r"^\s+[Uw] (.*)$", line)
            if member:
                source = member.group(1)
                source = f"{room}/{source}" if not only or source in only.split(",") else None
                objects.add(source)
            elif symbol and source and blocking(symbol.group(1)):
                found.add((source, blocking(symbol.group(1))))
        missing = [name for name in only.split(",") if name and f"{room}/{name}" not in objects]
        if missing:
            sys.exit(f"{path} has no {', '.join(missing)}")
    return found, objects - {None}


def allowed(path):
    entries = {}
    for number, line in enumerate(open(path), 1):
        line = line.split("#", 1)
        fields = line[0].split()
        if not fields:
            continue
        if len(line) < 2 or not line[1].strip():
            sys.exit(f"{path}:{number}: every entry says why it is harmless, behind a #")
        for name in fields[1:]:
            entries[(fields[0], name)] = number
    return entries


def main():
    entries = allowed(sys.argv[1])
    found, objects = wanted(sys.argv[2:])
    if len(objects) < 50:
        sys.exit(f"only {len(objects)} objects were looked at: wrong files?")
    wrong = sorted(call for call in found if call not in entries and (call[0], "*") not in entries)
    for source, name in wrong:
        print(f"{source} calls {name}, which may block, and runs on the engine's thread: let a helper do it (HelperThread "
              f"if it is waited for, SideThread if not), or say in {sys.argv[1]} why it cannot block")
    for (source, name), number in entries.items():
        if name != "*" and (source, name) not in found:  # another compiler may need it
            print(f"note: {sys.argv[1]}:{number}: here {source} does not call {name}")
    print(f"{len(objects)} objects, {len(found) - len(wrong)} calls allowed, {len(wrong)} not")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
