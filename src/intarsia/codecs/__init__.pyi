from .chunk_files import ChunkHeader, n5_header, tiff_header
from .conditional import ConditionalCodec
from .configuration import CodecLike, parse_codecs
from .decide.arrays import decision_of, with_decision, with_padding
from .decide.decisions import Decision, DecisionLike
from .decide.extend import extend_codecs
from .decide.masks import masks
from .decide.rewrite import rewrite
from .decide.trials import Sampled, Smallest
from .header import OffsetCodec, PadCodec
from .optional import OptionalCodec
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
