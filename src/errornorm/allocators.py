"""What is said when memory, or something else that a machine has little of, is used up."""

from __future__ import annotations

import errno
import os

# Those of CPU, CUDA and MPS, cuBLAS, C++, and the system.
SAID = ("can't allocate memory", "out of memory", "_ALLOC_FAILED", "bad_alloc", "Cannot allocate memory")

FULL = {errno.ENOSPC, errno.EDQUOT}
LIMITS = FULL | {errno.EFBIG}  # no more can be written; such an error does not say where
FILES = {errno.EMFILE, errno.ENFILE}  # too many that are open


def lacking(error: BaseException) -> bool:
    """Whether it is a machine's fault, and no file's."""
    return refused(error) or crowded(error) or (isinstance(error, OSError) and error.errno in LIMITS)


def crowded(error: BaseException) -> bool:
    """Whether too many files are open. Torch has only words for it."""
    return error.errno in FILES if isinstance(error, OSError) else os.strerror(errno.EMFILE) in str(error)


def refused(error: BaseException) -> bool:
    """Whether this is one of them speaking, and nothing is wrong but the size."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    speaks = isinstance(error, RuntimeError) or type(error).__name__ == "SafetensorError"
    return isinstance(error, MemoryError) or (speaks and any(said in str(error) for said in SAID))
