"""`intarsia.lint`: what an ingest would meet in an archive, and what it would do about it."""

import os
from collections.abc import Iterable
from typing import Any

from intarsia.archives.ingest_report import IngestReport
from intarsia.archives.ingestion import ingest


def lint(files: str | os.PathLike[str] | Iterable[Any], repo: Any = None, **options: Any) -> IngestReport:
    """Say what differs between files, and what an ingest would do about it; nothing is written.

    It takes the `files` and the `options` of `ingest`, of which it is a dry run: give those that you would
    ingest with, and it says what would come of it. Without any, the dimensions are those whose coordinates
    differ. With a `repo` the files are compared with the dataset that is there.

    `report.runs` are the runs of equal encoding, `report.drifts` what differs: how, in how many files, and
    what is done about it. Files that would be refused are among them, with the options that would take them;
    `report.failed` has the reason of each.

    >>> import tempfile, h5py, numpy as np, intarsia
    >>> folder = tempfile.mkdtemp()
    >>> for day in range(3):
    ...     with h5py.File(f"{folder}/{day}.h5", "w") as file:
    ...         file["time"] = np.array([min(day, 1)])  # the last has the time of the one before
    ...         _ = file.create_dataset("sst", data=np.ones((1, 4)), chunks=(1, 4 - day))
    ...         file["time"].make_scale("time")
    ...         file["sst"].dims[0].attach_scale(file["time"])
    >>> report = intarsia.lint(f"{folder}/*.h5")
    >>> [(drift.kind, drift.variable, drift.what) for drift in report.drifts if not drift.refused]
    [('chunks', 'sst', '1x3 instead of 1x4')]
    >>> [drift.options for drift in report.drifts if drift.refused]
    [('overlap', 'order_by')]
    """
    for name in ("dry_run", "message"):
        if name in options:
            raise TypeError(f"lint() takes no {name}: nothing is written")
    if not any(options.get(name) for name in ("concat_dim", "combine", "dims")):
        options["combine"] = "by_coords"
    return ingest(files, repo, **options, dry_run=True)
