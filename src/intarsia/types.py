"""Types that functions take and return, for annotations and `isinstance`; you can start without them."""

from intarsia.archives import (
    Drift,
    FileReport,
    IngestReport,
    KerchunkFile,
    Relocation,
    Run,
    Runs,
    SourceChunk,
    SourceFile,
    SourceFiles,
    SourcePart,
)
from intarsia.codecs.chunk_rewrite import Rewritten
from intarsia.engine.config import LogicalConfig
from intarsia.engine.reader import Reader
from intarsia.logical.advice import Advice
from intarsia.logical.explain import Explanation, PartExplanation
from intarsia.logical.optimization import Change
from intarsia.logical.verify import Problem
from intarsia.manifest.manifest import Manifest
from intarsia.progress import Progress
from intarsia.shards.compaction import Compaction
from intarsia.shards.inspection import ShardProblem, SlotStats
from intarsia.versions.commit import Backoff
from intarsia.versions.diff import ArrayChange, RegionChange
from intarsia.versions.forks import Share
from intarsia.versions.history import HistoryEntry
from intarsia.versions.transaction import Transaction
from intarsia.versions.verify_vacuum import Collected

__all__ = [
    "Advice", "ArrayChange", "Backoff", "Change", "Collected", "Compaction", "Drift", "Explanation",
    "FileReport", "HistoryEntry", "IngestReport", "KerchunkFile", "LogicalConfig", "Manifest",
    "PartExplanation", "Problem", "Progress", "Reader", "RegionChange", "Relocation", "Rewritten", "Run",
    "Runs", "ShardProblem", "Share", "SlotStats", "SourceChunk", "SourceFile", "SourceFiles", "SourcePart",
    "Transaction",
]  # fmt: skip
