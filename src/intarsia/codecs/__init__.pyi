from .bitmasks import masks
from .chain import CodecLike, parse_codecs
from .chunk_files import ChunkHeader, n5_header, tiff_header
from .conditional import ConditionalCodec
from .deciding import decision_of, with_decision, with_padding
from .decisions import Decision, DecisionLike
from .extending import extend_codecs
from .header import OffsetCodec, PadCodec
from .optional import OptionalCodec
from .packbits import PackBitsCodec
from .rewriting import rewrite
from .runtime import PaddingFunction
from .shuffle import ShuffleCodec
from .trials import Sampled, Smallest

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
