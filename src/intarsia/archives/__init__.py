"""Archives of files as logical arrays, without copying."""

from intarsia.archives.containers import authorize, containers
from intarsia.archives.given import from_attribute, from_name
from intarsia.archives.ingest_report import FileReport, IngestReport, Run, Runs
from intarsia.archives.ingestion import ingest

__all__ = [
    "FileReport",
    "IngestReport",
    "Run",
    "Runs",
    "authorize",
    "containers",
    "from_attribute",
    "from_name",
    "ingest",
]
