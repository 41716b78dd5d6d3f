"""What of the process must be set before training: threads, allocator."""

import ctypes
import platform

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT = 1 << 30  # bytes


def prepare(threads: int) -> None:
    """Set torch's threads and keep freed memory in the process.

    glibc gives blocks of some MB back to the system and faults them in again at the next step;
    that was half of the time of an unchunked cross-entropy. Neither changes a bit of the result
    except through the number of threads, which the scale fixes.
    """
    torch.set_num_threads(threads)
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _KEPT)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT)
