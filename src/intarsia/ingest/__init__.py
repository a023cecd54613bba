"""Archives of files as logical arrays, without copying."""

import sys
from types import ModuleType
from typing import Any

from intarsia.ingest.archive import ingest
from intarsia.ingest.containers import authorize, containers
from intarsia.ingest.report import FileReport, IngestReport, Run, Runs

__all__ = ["FileReport", "IngestReport", "Run", "Runs", "authorize", "containers", "ingest"]


class _Package(ModuleType):
    """`intarsia.ingest` is a function and also the name of this package: whichever of the two the name stands
    for after an import of some module in here, it can be called."""

    def __call__(self, *args: Any, **options: Any) -> IngestReport:
        return ingest(*args, **options)


sys.modules[__name__].__class__ = _Package
