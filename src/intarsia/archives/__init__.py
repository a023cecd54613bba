"""Archives of files as logical arrays, without copying."""

from intarsia.archives.containers import authorize, containers
from intarsia.archives.drifts import Drift
from intarsia.archives.given import from_attribute, from_name
from intarsia.archives.ingest_report import FileReport, IngestReport, Run, Runs
from intarsia.archives.ingestion import ingest
from intarsia.archives.linting import lint
from intarsia.archives.provenance import SourceChunk, SourceFile, SourceFiles, SourcePart, sources

__all__ = [
    "Drift",
    "FileReport",
    "IngestReport",
    "Run",
    "Runs",
    "SourceChunk",
    "SourceFile",
    "SourceFiles",
    "SourcePart",
    "authorize",
    "containers",
    "from_attribute",
    "from_name",
    "ingest",
    "lint",
    "sources",
]
