"""The other side of `sandbox.py`: a script that shuts itself in and becomes the program.

It is run by path, in a process of its own, with nothing but the standard library. The order comes
as JSON on standard input. What it does on Linux, in this order:

1. namespaces of its own: network (with no device up), processes, mounts, IPC; users too where it is
   not root;
2. a root in memory with Python, its libraries and /dev/null, read-only, and /work to write to;
3. no rights: of root it becomes a user of no one, else it loses its capabilities with `exec`;
4. limits; then it executes Python, which says on the result's pipe that it begins, runs the
   program, and writes a word there at its end.

Written with ctypes since Python has `os.unshare` from 3.12 on only, and no `mount`.
"""

import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any

NO_NAMESPACES = 77
STARTED = b"S"

RUNNER = """import os
write = os.write
write({result}, {started})
with open("program.py", encoding="utf-8", errors="surrogatepass") as file:
    text = file.read()
exec(compile(text, "program.py", "exec"), {{"__name__": "__main__"}})
write({result}, {word})
"""

_NEW_MOUNTS, _NEW_IPC, _NEW_USERS = 0x00020000, 0x08000000, 0x10000000
_NEW_PROCESSES, _NEW_NETWORK = 0x20000000, 0x40000000
_NO_SETUID, _NO_DEVICES, _BIND, _RECURSIVE, _PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
_MOUNT_SETATTR, _AT_CWD, _AT_RECURSIVE = 442, -100, 0x8000  # the same number on every machine
_ATTRIBUTES = 0x1 | 0x2  # read-only, no setuid
_PDEATHSIG, _NO_NEW_PRIVILEGES = 1, 38
_FIRST_USER, _USERS = 61184, 4000  # systemd's range for users of no one
_NOBODY = 65534


def main() -> None:
    """Read the order, shut in if that is wanted, and become the program."""
    order = json.load(sys.stdin)
    order["executable"] = os.path.realpath(sys.executable)  # before the root is another
    if not order["safe"]:
        become(order, order["folder"])
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        # With whoever asked for it ends all of this.
        _call(libc, "prctl", _PDEATHSIG, signal.SIGKILL)
        enter(libc)
        child = os.fork()  # the first process of its namespace: with it end all others
    except (OSError, AttributeError) as error:
        give_up(error)
    if child:
        os.close(order["result"])
        status = os.waitpid(child, 0)[1]
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
    try:
        _call(libc, "prctl", _PDEATHSIG, signal.SIGKILL)
        furnish(libc, order)
        drop_rights(libc)
    except (OSError, AttributeError) as error:
        give_up(error)
    become(order, "/work")


def enter(libc: Any) -> None:
    """Enter new namespaces; of users too where this is not root."""
    user, group = os.geteuid(), os.getegid()
    kinds = _NEW_MOUNTS | _NEW_IPC | _NEW_PROCESSES | _NEW_NETWORK
    _call(libc, "unshare", kinds | (_NEW_USERS if user else 0))
    if user:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{user} {user} 1")
        write("/proc/self/gid_map", f"{group} {group} 1")
    mount(libc, None, "/", None, _RECURSIVE | _PRIVATE)


def furnish(libc: Any, order: dict[str, Any]) -> None:
    """Make the root that the program sees, and move there."""
    root = order["folder"]
    mount(libc, "tmpfs", root, "tmpfs", _NO_SETUID, "size=1m,mode=755")
    for path in wanted():
        inside = root + path
        if os.path.isdir(path):
            os.makedirs(inside, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(inside), exist_ok=True)
            write(inside, "")
        mount(libc, path, inside, None, _BIND | _RECURSIVE)
    work = f"{root}/work"
    os.mkdir(work)
    attributes = (ctypes.c_uint64 * 4)(_ATTRIBUTES, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _call(
        libc, "syscall", ctypes.c_long(_MOUNT_SETATTR), ctypes.c_int(_AT_CWD),
        ctypes.c_char_p(os.fsencode(root)), ctypes.c_uint(_AT_RECURSIVE), attributes, size,
    )  # fmt: skip
    size_bytes = order["limits"]["file_bytes"] + len(order["program"]) * 4
    flags = _NO_SETUID | _NO_DEVICES
    mount(libc, "tmpfs", work, "tmpfs", flags, f"size={size_bytes},nr_inodes=4096,mode=777")
    os.chroot(root)


def wanted() -> list[str]:
    """Return what of this machine Python needs, none of it inside another."""
    executable = os.path.realpath(sys.executable)
    paths = ["/usr", "/lib", "/lib64", "/lib32", "/etc/ld.so.cache", "/dev/null"]
    paths += [sys.base_prefix, sys.base_exec_prefix, os.path.dirname(executable)]
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = [line.split(maxsplit=5)[5].strip() for line in maps if line.count("/")]
    paths += [os.path.dirname(path) for path in mapped if path.startswith("/")]
    found: list[str] = []
    for path in sorted({os.path.abspath(path) for path in paths if os.path.exists(path)}, key=len):
        if path != "/" and not any(path.startswith(f"{one}/") for one in found):
            found.append(path)
    return found


def drop_rights(libc: Any) -> None:
    """Become a user of no one where this is root; get no rights back by executing anything."""
    if os.geteuid() == 0:
        # One of many, since the limit of processes counts those of a user.
        user = _FIRST_USER + int.from_bytes(os.urandom(2), "big") % _USERS
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(user, user, user)
    _call(libc, "prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def become(order: dict[str, Any], folder: str) -> None:
    """Write the program down, take the limits on, and execute Python on it."""
    os.chdir(folder)
    with open("program.py", "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(order["program"])
    limits = order["limits"]
    for kind, amount in (
        ("CORE", 0),
        ("CPU", limits["cpu_seconds"]),
        ("AS", limits["memory_bytes"]),
        ("FSIZE", limits["file_bytes"]),
        ("NOFILE", 64),
        ("NPROC", limits["processes"]),
    ):
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (amount, amount))
        except (AttributeError, ValueError, OSError) as error:
            if order["safe"]:  # other systems lack some
                give_up(error)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    result = order["result"]
    os.set_inheritable(result, True)
    runner = RUNNER.format(result=result, started=STARTED, word=order["word"].encode())
    environment = {"HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
    if "LD_LIBRARY_PATH" in os.environ:  # of a Python that is not where the system looks
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    python = order["executable"]
    os.execve(python, [python, "-I", "-S", "-B", "-u", "-c", runner], environment)


def give_up(error: Exception) -> None:
    """Say why the program cannot be shut in, and end."""
    os.write(1, f"{error}\n".encode(errors="replace"))
    os._exit(NO_NAMESPACES)


def mount(
    libc: Any, source: str | None, target: str, kind: str | None, flags: int, options: str = ""
) -> None:
    """Mount something at a place."""
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _call(libc, "mount", *texts, ctypes.c_ulong(flags), os.fsencode(options) if options else None)


def write(path: str, text: str) -> None:
    """Write a small file."""
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _call(libc: Any, name: str, *arguments: Any) -> None:
    """Call a function of the C library.

    Raises:
        OSError: it failed; with its name.
    """
    if getattr(libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


if __name__ == "__main__":
    main()
