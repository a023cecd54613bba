"""Archives of files as logical arrays, without copying."""

from intarsia.ingest.containers import authorize, containers
from intarsia.ingest.ingest import ingest
from intarsia.ingest.report import FileReport, IngestReport, Run, Runs

__all__ = ["FileReport", "IngestReport", "Run", "Runs", "authorize", "containers", "ingest"]
