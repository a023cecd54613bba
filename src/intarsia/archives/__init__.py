"""Archives of files as logical arrays, without copying."""

from intarsia.archives.containers import authorize, containers
from intarsia.archives.drifts import Drift
from intarsia.archives.given import from_attribute, from_name, from_variable
from intarsia.archives.ingest_report import FileReport, IngestReport, Run, Runs
from intarsia.archives.ingestion import ingest, lint
from intarsia.archives.kerchunk_references import KerchunkFile, to_kerchunk
from intarsia.archives.metadata import FileMetadata, VariableMetadata
from intarsia.archives.provenance import SourceChunk, SourceFile, SourceFiles, SourcePart, sources
from intarsia.archives.relocation import Relocation, relocate
from intarsia.archives.removal import remove

__all__ = [
    "Drift",
    "FileMetadata",
    "FileReport",
    "IngestReport",
    "KerchunkFile",
    "Relocation",
    "Run",
    "Runs",
    "SourceChunk",
    "SourceFile",
    "SourceFiles",
    "SourcePart",
    "VariableMetadata",
    "authorize",
    "containers",
    "from_attribute",
    "from_name",
    "from_variable",
    "ingest",
    "lint",
    "relocate",
    "remove",
    "sources",
    "to_kerchunk",
]
