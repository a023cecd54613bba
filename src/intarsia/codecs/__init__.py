"""Zarr v3 codecs; each is registered with zarr by an entry point, so nothing needs importing to read."""

from intarsia.codecs.bitmasks import masks
from intarsia.codecs.chain import CodecLike, parse_codecs
from intarsia.codecs.chunk_files import ChunkHeader, n5_header, tiff_header
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.context import switch_pipeline
from intarsia.codecs.deciding import decision_of, with_decision
from intarsia.codecs.decisions import Decision, DecisionLike
from intarsia.codecs.header import OffsetCodec, PadCodec, PaddingFunction
from intarsia.codecs.optional import OptionalCodec
from intarsia.codecs.packbits import PackBitsCodec
from intarsia.codecs.rewriting import Rewritten, rewrite
from intarsia.codecs.shuffle import ShuffleCodec
from intarsia.codecs.trials import Sampled, Smallest

__all__ = [
    "ChunkHeader",
    "CodecLike",
    "ConditionalCodec",
    "Decision",
    "DecisionLike",
    "OffsetCodec",
    "OptionalCodec",
    "PackBitsCodec",
    "PadCodec",
    "PaddingFunction",
    "Rewritten",
    "Sampled",
    "ShuffleCodec",
    "Smallest",
    "decision_of",
    "masks",
    "n5_header",
    "parse_codecs",
    "rewrite",
    "tiff_header",
    "with_decision",
]

switch_pipeline()
