from .base import CodecLike, parse_codecs
from .chunk_headers import ChunkHeader, n5_header, tiff_header
from .chunk_rewrite import rewrite
from .conditional import ConditionalCodec, OptionalCodec, one_of
from .decisions import Decision, DecisionLike, OneOf, Sampled, Smallest
from .packbits import PackBitsCodec
from .pad import OffsetCodec, PadCodec
from .reshape import ReshapeCodec
from .runtime_options import PaddingFunction
from .shuffle import ShuffleCodec
from .stored_chunks import iter_chunk_slices
from .stored_decisions import decision_of, extend_codecs, masks, with_decision, with_padding

__all__ = [
    "ChunkHeader",
    "CodecLike",
    "ConditionalCodec",
    "Decision",
    "DecisionLike",
    "OffsetCodec",
    "OneOf",
    "OptionalCodec",
    "PackBitsCodec",
    "PadCodec",
    "PaddingFunction",
    "ReshapeCodec",
    "Sampled",
    "ShuffleCodec",
    "Smallest",
    "decision_of",
    "extend_codecs",
    "iter_chunk_slices",
    "masks",
    "n5_header",
    "one_of",
    "parse_codecs",
    "rewrite",
    "tiff_header",
    "with_decision",
    "with_padding",
]
