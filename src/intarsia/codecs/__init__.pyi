from .base import CodecLike, parse_codecs
from .chunk_files import ChunkHeader, fits_header, n5_header, npy_header, tiff_header
from .conditional import ConditionalCodec, OptionalCodec
from .decide.arrays import decision_of, extend_codecs, with_decision, with_padding
from .decide.decisions import Decision, DecisionLike
from .decide.masks import masks
from .decide.rewrite import rewrite
from .decide.trials import OneOf, Sampled, Smallest, one_of
from .header import OffsetCodec, PadCodec
from .packbits import PackBitsCodec
from .reshape import ReshapeCodec
from .runtime import PaddingFunction
from .shuffle import ShuffleCodec

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
    "fits_header",
    "masks",
    "n5_header",
    "npy_header",
    "one_of",
    "parse_codecs",
    "rewrite",
    "tiff_header",
    "with_decision",
    "with_padding",
]
