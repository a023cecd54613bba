"""Archives of files as logical arrays, without copying."""

from intarsia.archives.archive import ingest
from intarsia.archives.containers import authorize, containers
from intarsia.archives.report import FileReport, IngestReport, Run, Runs

__all__ = ["FileReport", "IngestReport", "Run", "Runs", "authorize", "containers", "ingest"]
