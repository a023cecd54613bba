"""Decoders alone, without a read around them: so fast that there can be hundreds of thousands of cases.

What a decoder raises, a read turns into a `ReadError` that names the chunk (`decode_batch`); here it is
enough that it is an exception, that it is not for want of memory, and that values have the right shape.
"""

import numpy as np

from intarsia.engine.chunk_codecs import Decoder, Scratch
from intarsia.engine.prepared_member import PreparedMember
from soak.damage.chunks import CHUNK, chains, logical, quiet, values_of
from soak.mutations import bombs, damaged
from soak.target import Target, Wrong


class Decoders:
    """Runs cases on the chains of codecs."""

    def __init__(self, made):
        self._chains = []
        for stored, _ in made:
            ((name, member),) = stored.array.members.items()
            source = PreparedMember.of(name, member)
            if isinstance(getattr(source, "decoder", None), Decoder):
                self._chains.append((source.decoder, list(stored.chunks.values())))
        self._scratch = Scratch()
        bombs()

    def __call__(self, _number, rng):
        decoder, chunks = rng.choice(self._chains)
        data = damaged(rng.choice(chunks), rng, chunks)
        try:
            values = decoder.values(data, self._scratch)
        except MemoryError as error:
            raise Wrong("it asked for more memory than there may be") from error
        except Exception:
            return "refused"
        shape = np.shape(values)
        if shape not in (CHUNK, (6, 10)):
            raise Wrong(f"the shape is {shape}")
        return "read"


@quiet
def prepare(_folder, _seed):
    return Decoders([logical(codecs, values_of()) for codecs in chains()])


TARGETS = [Target("damage", "decoders of every chain of codecs", prepare, share=100, stretch=200_000)]
