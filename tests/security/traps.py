"""Pickles that leave a mark if anyone runs them, in every form that a reader may meet."""

import io
import json
import os
import pickle
import shutil
import subprocess
import tarfile

import numpy
import torch

from errornorm.training import checkpoints


class Trap:
    """Unpickled, it makes a file."""

    def __init__(self, mark, how=0):
        self.mark, self.how = str(mark), how

    def __reduce__(self):
        ways = [
            (open, (self.mark, "w")),
            (exec, (f"open({self.mark!r}, 'w')",)),
            (os.system, (f"touch '{self.mark}'",)),
            (subprocess.Popen, (["touch", self.mark],)),
            (os.mkdir, (self.mark,)),
        ]
        return ways[self.how % len(ways)]


def raw(trap, protocol=4):
    return pickle.dumps({"state": trap}, protocol)


def saved(trap, modern=True):
    """As `torch.save` writes it."""
    file = io.BytesIO()
    torch.save({"state": trap, "x": torch.zeros(2)}, file, _use_new_zipfile_serialization=modern)
    return file.getvalue()


def array(trap):
    """An array of objects, as numpy writes it."""
    file = io.BytesIO()
    numpy.save(file, numpy.array([trap], dtype=object), allow_pickle=True)
    return file.getvalue()


def tar(members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return file.getvalue()


def code(mark):
    """A module that leaves the mark when it is imported."""
    return f"open({str(mark)!r}, 'w')\n"


def plant(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def reseal(folder):
    """Whoever can change a checkpoint can change its checksums too."""
    checkpoints._seal(folder)
    checkpoints._verdicts.clear()


def change(path, **entries):
    """Of a JSON file."""
    about = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(about | entries), encoding="utf-8")


def copy(source, target):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
