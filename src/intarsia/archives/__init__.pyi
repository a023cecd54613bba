from .ingest_arguments import from_attribute, from_name, from_variable
from .ingest_report import FileReport, IngestReport, Run, Runs
from .ingestion import ingest, lint, remove
from .plan.lint_findings import Drift
from .provenance import SourceChunk, SourceFile, SourceFiles, SourcePart, sources
from .references.to_kerchunk import KerchunkFile, to_kerchunk
from .relocation import Relocation, relocate
from .source_access import authorize, containers

__all__ = [
    "Drift",
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
