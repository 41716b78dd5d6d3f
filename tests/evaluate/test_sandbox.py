"""Code that a model has written: it passes only at its end, and what it breaks is its own."""

import os
import socket
import sys
import time

import psutil
import pytest

from bam_lab.errors import InputError
from bam_lab.evaluate import sandbox
from bam_lab.evaluate.sandbox import Limits, run

pytestmark = pytest.mark.slow
"""Loops, forks and what eats memory, run for real: nothing to have beside other tests."""

QUICK = Limits(seconds=1.0)

shut_in = pytest.mark.skipif(
    sandbox.why_unsafe() is not None, reason=f"cannot be shut in here: {sandbox.why_unsafe()}"
)


@pytest.fixture(params=["safe", "unsafe"])
def run_either(request, monkeypatch):
    """Run code shut in, and as where that cannot be had."""
    if request.param == "unsafe":
        monkeypatch.setattr(sandbox.sys, "platform", "plan9")
    elif sandbox.why_unsafe() is not None:
        pytest.skip(sandbox.why_unsafe())

    def ran(program, limits=QUICK):
        outcome = run(program, limits, allow_unsafe=True)
        assert outcome.safe == (request.param == "safe")
        return outcome

    return ran


ENDS = {
    "assert 1 + 1 == 2": (True, "ran to its end"),
    "import math, json, re, collections, itertools, heapq, typing, random": (
        True,
        "ran to its end",
    ),
    "assert 1 == 2, 'no'": (False, "AssertionError: no"),
    "def f(:": (False, "SyntaxError: invalid syntax"),
    "import sys; sys.exit(0)": (False, "exited before its end"),
    "import os; os._exit(0)": (False, "exited before its end"),
    "raise SystemExit(3)": (False, "exited with 3"),
    "print('so far')\nraise ValueError('\\x1b[31m' + 'a' * 1000)": (False, "ValueError: ?[31maaa"),
    "x = '\ud800'": (False, "UnicodeEncodeError"),
    "while True: pass": (False, "ran longer than 1 s"),
    "import time\ntime.sleep(60)": (False, "ran longer than 1 s"),
    "while True: print('x' * 1000)": (False, "printed more than 64,000 bytes"),
    "x = bytearray(10**10)": (False, "MemoryError"),
    "x = []\nwhile True: x.append(bytearray(10**7))": (False, "MemoryError"),
    "input()": (False, "EOFError"),
    "import ctypes\nctypes.string_at(0)": (False, "was ended by SIGSEGV"),
}


@pytest.mark.parametrize("program", ENDS, ids=lambda text: text[:30])
def test_what_became_of_it(program, run_either):
    passed, why = ENDS[program]
    outcome = run_either(program)
    assert outcome.passed == passed
    assert why in outcome.why
    assert len(outcome.why) <= 200
    assert 0 <= outcome.seconds < 1.5


def test_files_are_limited(run_either):
    one = "f = open('big', 'wb')\nwhile True: f.write(b'0' * 10**6)"
    outcome = run_either(one, Limits(seconds=5.0, file_bytes=4_000_000))
    assert not outcome.passed
    assert "space left" in outcome.why or "too large" in outcome.why or "SIGXFSZ" in outcome.why


def test_a_loop_of_forks_ends_with_all_its_children(run_either):
    outcome = run_either("import os\nwhile True:\n    os.fork()")
    assert not outcome.passed
    assert _running(lambda words: "program.py" in " ".join(words)) == []


def test_a_child_that_leaves_the_group_ends_too(run_either):
    program = "import os, time\nif os.fork() == 0:\n    os.setsid()\ntime.sleep(60)"
    outcome = run_either(program)
    assert outcome.why == "ran longer than 1 s"
    assert _running(lambda words: "program.py" in " ".join(words)) == []


def test_processor_time_is_limited(run_either):
    outcome = run_either("while True: pass", Limits(seconds=20.0, cpu_seconds=1))
    assert outcome.why == "used more than 1 s of CPU"


@shut_in
def test_no_more_processes_than_allowed():
    program = "import os\nfor _ in range(9):\n    if os.fork() == 0:\n        os._exit(0)\n"
    assert "Resource temporarily unavailable" in run(program, Limits(processes=4)).why
    assert run(program, Limits(processes=20)).passed


@shut_in
def test_all_files_together_are_limited():
    program = "for i in range(40):\n    open(f'{i}', 'wb').write(b'0' * 10**6)"
    assert "No space left" in run(program, Limits(file_bytes=4_000_000)).why
    assert run(program, Limits(file_bytes=64_000_000)).passed


@shut_in
def test_no_network():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        outcome = run(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=1)")
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()
    assert "unreachable" in outcome.why


@shut_in
def test_no_socket_of_the_users(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        outcome = run(f"import socket\nsocket.socket(socket.AF_UNIX).connect({str(path)!r})")
    assert "FileNotFoundError" in outcome.why


@shut_in
def test_no_file_of_the_users(tmp_path):
    (tmp_path / "secret").write_text("mine")
    assert "FileNotFoundError" in run(f"open({str(tmp_path / 'secret')!r})").why
    program = "import os\nassert os.listdir(os.path.expanduser('~')) == ['program.py']\n"
    program += "assert not os.path.exists('/proc/self') and not os.path.exists('/run')\n"
    program += "assert not any('SECRET' in name for name in os.environ)"
    os.environ["SECRET"] = "1"
    try:
        assert run(program).passed
    finally:
        del os.environ["SECRET"]


@shut_in
@pytest.mark.parametrize("folder", ["/", "/usr", "/etc", os.path.dirname(os.__file__)])
def test_no_writing_but_in_its_own_folder(folder):
    why = run(f"open({folder!r} + '/bam-lab-was-here', 'w')").why
    assert "PermissionError" in why or "Read-only" in why
    assert not os.path.exists(f"{folder}/bam-lab-was-here")
    # Whoever the code runs as, what is the user's own with it.
    assert run(f"import os\nassert os.statvfs({folder!r}).f_flag & os.ST_RDONLY").passed
    assert run("open('mine', 'w').write('x')\nassert open('mine').read() == 'x'").passed


@shut_in
def test_no_rights_to_get_back():
    program = "import os\nassert os.geteuid() != 0\n"
    program += "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    program += "assert libc.mount(None, b'/', None, ctypes.c_ulong(32), None) != 0\n"  # remount
    program += "assert libc.umount2(b'/usr', 2) != 0\nassert libc.chroot(b'.') != 0\n"
    program += "assert libc.setuid(0) != 0 or os.getuid() != 0"
    outcome = run(program)
    assert outcome.passed, outcome.why


@shut_in
def test_no_process_but_its_own():
    program = "import os\nassert os.getpid() == 1 and os.getppid() == 0\n"
    program += f"try:\n    os.kill({os.getpid()}, 0)\nexcept ProcessLookupError:\n    pass\n"
    program += "else:\n    raise SystemExit('saw it')"
    assert run(program).passed


def test_refused_where_it_cannot_be_shut_in(monkeypatch, tmp_path):
    script = tmp_path / "inside.py"
    script.write_text("print('unshare: Operation not permitted')\nraise SystemExit(77)\n")
    with monkeypatch.context() as patched:
        patched.setattr(sandbox, "_INSIDE", script)
        assert sandbox.why_unsafe() == "unshare: Operation not permitted"
        with pytest.raises(InputError, match="cannot shut it in: unshare: Operation not permitted"):
            run("1 + 1")
    monkeypatch.setattr(sandbox.sys, "platform", "plan9")
    with pytest.raises(InputError, match="namespaces are Linux's, and this is plan9"):
        run("1 + 1")
    assert run("1 + 1", allow_unsafe=True).safe is False


def test_unsafe_code_writes_to_a_folder_that_goes(monkeypatch):
    monkeypatch.setattr(sandbox.sys, "platform", "plan9")
    outcome = run("import os\nopen('mine', 'w')\nraise SystemExit(os.getcwd())", allow_unsafe=True)
    assert os.path.basename(outcome.why).startswith("bam-lab-")
    assert not os.path.exists(outcome.why)


def test_an_interrupted_run_leaves_nothing(monkeypatch):
    def interrupted(*_):
        time.sleep(0.3)
        raise KeyboardInterrupt

    monkeypatch.setattr(sandbox, "_listen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sandbox._run("import time\ntime.sleep(60)", QUICK, safe=sys.platform == "linux")
    assert _running(lambda words: "program.py" in " ".join(words)) == []


def _running(wanted):
    """Return the processes whose command line is wanted, once what was killed has gone."""
    for _ in range(20):
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            words, status = process.info["cmdline"] or [], process.info["status"]
            if wanted(words) and "-u" in words and status != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        if not found:
            break
        time.sleep(0.05)
    return found
