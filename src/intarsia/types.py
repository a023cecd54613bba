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
from intarsia.array import LogicalConfig, Manifest, Reader
from intarsia.array.explain import Explanation, PartExplanation
from intarsia.array.upkeep import Problem
from intarsia.codecs.decide.rewrite import Rewritten
from intarsia.progress import Progress
from intarsia.shards.compaction import Compaction
from intarsia.shards.inspection import ShardProblem, SlotStats
from intarsia.tune import Advice, Change
from intarsia.versions.commit import Backoff
from intarsia.versions.compare import ArrayChange, RegionChange
from intarsia.versions.forks import Share
from intarsia.versions.history import HistoryEntry
from intarsia.versions.housekeeping import Collected
from intarsia.versions.transaction import Transaction

__all__ = [
    "Advice", "ArrayChange", "Backoff", "Change", "Collected", "Compaction", "Drift", "Explanation",
    "FileReport", "HistoryEntry", "IngestReport", "KerchunkFile", "LogicalConfig", "Manifest",
    "PartExplanation", "Problem", "Progress", "Reader", "RegionChange", "Relocation", "Rewritten", "Run",
    "Runs", "ShardProblem", "Share", "SlotStats", "SourceChunk", "SourceFile", "SourceFiles", "SourcePart",
    "Transaction",
]  # fmt: skip
