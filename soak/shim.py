"""The library of `shim.c`: compiled where a compiler is, and told what to do."""

import ctypes
import mmap
import os
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
FIELDS = ("armed", "calls", "fatal", "error", "lasting", "recording", "shorten", "hits", "reading")
PATH_MAX = 4096
CREATE, WRITE, RENAME, LINK, UNLINK, SYNC, TRUNCATE, MKDIR = range(1, 9)


class Control(ctypes.Structure):
    """As in shim.c."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in (*FIELDS, "ahead")),
        ("root", ctypes.c_char * PATH_MAX),
        ("log", ctypes.c_char * PATH_MAX),
    )


def missing():
    """Why there is no such library here, or None."""
    if sys.platform != "linux":
        return "it takes Linux"
    return None if shutil.which("cc") else "there is no C compiler"


def environment(folder):
    """Compile it; the variables with which a process loads it."""
    library, place = folder / "shim.so", folder / "shim"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-w", "-o", library, SOURCE, "-ldl", "-lpthread"], check=True
    )
    place.write_bytes(bytes(ctypes.sizeof(Control)))
    return {"LD_PRELOAD": str(library), "SOAK_SHIM": str(place)}


@dataclass(frozen=True)
class Call:
    """One recorded change of a file."""

    kind: int
    path: str
    other: str
    offset: int
    data: bytes


class Shim:
    """How this process tells the library what to do."""

    def __init__(self, root):
        self._file = open(os.environ["SOAK_SHIM"], "r+b")  # noqa: SIM115  # kept open with the mapping
        self._memory = mmap.mmap(self._file.fileno(), ctypes.sizeof(Control))
        self._control = Control.from_buffer(self._memory)
        self._control.root = str(root).encode()

    def _arm(self, **fields):
        for name in FIELDS:
            setattr(self._control, name, fields.get(name, 0))
        self._control.armed = 1

    def set_clock(self, seconds):
        """Let all processes that loaded it have a clock that is ahead, or behind if negative."""
        self._control.ahead = seconds

    def failing(self, function, fatal, error, **how):
        """Call a function in which a call fails; gives what it raised, and whether that call was reached.

        The call is the `fatal`-th one that changes files, or reads them if `reading`; so are all after it if
        `lasting`, and it does half of its work if `shorten`.
        """
        self._arm(fatal=fatal, error=error, **how)
        try:
            function()
        except Exception as raised:
            return raised, bool(self._control.hits)
        else:
            return None, bool(self._control.hits)
        finally:
            self._control.armed = 0

    def count_reads(self, function):
        """Call a function; gives how often it read below the folder."""
        self._arm(reading=1)
        try:
            function()
        finally:
            self._control.armed = 0
        return self._control.calls

    def recorded(self, function, log):
        """Call a function; gives all that it did to files."""
        log.unlink(missing_ok=True)
        log.touch()
        self._control.log = str(log).encode()
        self._arm(recording=1)
        try:
            function()
        finally:
            self._control.armed = 0
        return list(parsed(log.read_bytes()))


def parsed(data):
    at = 0
    while at < len(data):
        kind, first, second = struct.unpack_from("<iii", data, at)
        offset, length = struct.unpack_from("<qq", data, at + 12)
        at += 28
        path, other = data[at : at + first].decode(), data[at + first : at + first + second].decode()
        at += first + second
        yield Call(kind, path, other, offset, data[at : at + length])
        at += length


def replay(calls, before, after):
    """Do to the files below `after` what was done to those below `before`."""

    def moved(path):
        return Path(after) / Path(path).relative_to(before)

    for call in calls:
        if call.kind == SYNC:
            continue
        here = moved(call.path)
        if call.kind == MKDIR:
            here.mkdir(parents=True, exist_ok=True)
        elif call.kind == CREATE:
            here.parent.mkdir(parents=True, exist_ok=True)
            here.open("wb" if call.offset else "ab").close()
        elif call.kind == WRITE and here.exists():
            with here.open("r+b") as file:
                file.seek(call.offset)
                file.write(call.data)
        elif call.kind == TRUNCATE and here.exists():
            os.truncate(here, call.offset)
        elif call.kind == RENAME and here.exists():
            here.replace(moved(call.other))
        elif call.kind == LINK and here.exists() and not moved(call.other).exists():
            os.link(here, moved(call.other))
        elif call.kind == UNLINK:
            here.unlink(missing_ok=True)


def synced(calls):
    """Positions of the writes that are certainly on the disk: their file was told so afterwards."""
    safe, pending = set(), {}
    for position, call in enumerate(calls):
        if call.kind in (WRITE, TRUNCATE):
            pending.setdefault(call.path, []).append(position)
        elif call.kind == SYNC:
            safe.update(pending.pop(call.path, ()))
        elif call.kind == RENAME and call.path in pending:
            pending.setdefault(call.other, []).extend(pending.pop(call.path))
    return safe
