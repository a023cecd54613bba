"""An ingest in a process of its own, which notes what it parses and may be killed at any moment.

`python -m tests.archives.killed_ingest FOLDER REPOSITORY LOG BATCH SECONDS`: after so many seconds of the
processor it dies as by SIGKILL, wherever it is; 0 lets it live. If it lives, it prints how many it took.
"""

import signal
import sys
import time
from pathlib import Path

import intarsia
from intarsia.archives.formats.hdf5 import HDF5
from intarsia.archives.plan import ingest_plan


def main(folder: str, repository: str, log: str, batch: str, seconds: str) -> None:
    parse = HDF5.parse

    def noted(self, url, *args):
        with open(log, "a") as file:
            file.write(f"{url}\n")
        return parse(self, url, *args)

    HDF5.parse = noted
    ingest_plan.FULL = 5  # so that some commits fill a member
    files = sorted(Path(folder).glob("*.nc"))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # which ends a process at once, as SIGKILL does
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, float(seconds))
    intarsia.ingest(files, repository, concat_dim="time", batch=int(batch))
    print(time.process_time() - start)


if __name__ == "__main__":
    main(*sys.argv[1:])
