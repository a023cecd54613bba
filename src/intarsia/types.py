"""Types that functions take and return, for annotations and `isinstance`; you can start without them."""

from intarsia.archives import (
    EncodingRun,
    EncodingRuns,
    FileReport,
    IngestReport,
    KerchunkFile,
    LintFinding,
    Relocation,
    SourceChunk,
    SourceFile,
    SourceFiles,
    SourcePart,
)
from intarsia.codecs.chunk_rewrite import RewriteReport
from intarsia.engine.config import LogicalConfig
from intarsia.engine.reader import Reader
from intarsia.logical.advice import Advice
from intarsia.logical.explain import Explanation, PartExplanation
from intarsia.logical.optimization import OptimizedRegion
from intarsia.logical.verify import Problem
from intarsia.manifest.manifest import Manifest
from intarsia.progress import Progress
from intarsia.shards.compaction import CompactionReport
from intarsia.shards.inspection import ShardProblem, SlotStats
from intarsia.versions.commit import Backoff
from intarsia.versions.diff import ArrayChange, RegionChange
from intarsia.versions.forks import WriteShare
from intarsia.versions.history import HistoryEntry
from intarsia.versions.transaction import Transaction
from intarsia.versions.verify_vacuum import GarbageReport

__all__ = [
    "Advice", "ArrayChange", "Backoff", "CompactionReport", "EncodingRun", "EncodingRuns", "Explanation",
    "FileReport", "GarbageReport", "HistoryEntry", "IngestReport", "KerchunkFile", "LintFinding",
    "LogicalConfig", "Manifest", "OptimizedRegion", "PartExplanation", "Problem", "Progress", "Reader",
    "RegionChange", "Relocation", "RewriteReport", "ShardProblem", "SlotStats", "SourceChunk",
    "SourceFile", "SourceFiles", "SourcePart", "Transaction", "WriteShare",
]  # fmt: skip
