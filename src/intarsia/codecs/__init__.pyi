from .base import CodecLike, parse_codecs
from .conditional import ConditionalCodec, OptionalCodec
from .decide.arrays import decision_of, extend_codecs, with_decision, with_padding
from .decide.decisions import Decision, DecisionLike
from .decide.masks import masks
from .decide.rewrite import rewrite
from .decide.trials import Sampled, Smallest
from .header import ChunkHeader, OffsetCodec, PadCodec, n5_header, tiff_header
from .packbits import PackBitsCodec
from .runtime import PaddingFunction
from .shuffle import ShuffleCodec

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
    "Sampled",
    "ShuffleCodec",
    "Smallest",
    "decision_of",
    "extend_codecs",
    "masks",
    "n5_header",
    "parse_codecs",
    "rewrite",
    "tiff_header",
    "with_decision",
    "with_padding",
]
