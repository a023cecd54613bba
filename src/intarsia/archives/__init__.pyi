from .ingest_arguments import from_attribute, from_name, from_variable
from .ingest_report import EncodingRun, EncodingRuns, FileReport, IngestReport
from .ingestion import ingest, lint, remove
from .plan.lint_findings import LintFinding
from .provenance import SourceChunk, SourceFile, SourceFiles, SourcePart, sources
from .references.to_kerchunk import KerchunkFile, to_kerchunk
from .relocation import Relocation, relocate
from .source_access import authorize, containers

__all__ = [
    "EncodingRun",
    "EncodingRuns",
    "FileReport",
    "IngestReport",
    "KerchunkFile",
    "LintFinding",
    "Relocation",
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
