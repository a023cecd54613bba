"""Encoding chunks anew while others go on writing them."""

import numpy as np
from zarr.codecs import BytesCodec, ZstdCodec

import intarsia
from intarsia.shards.recoding import Recoding
from tests.shards import fleet


def test_what_was_written_after_the_preparation_is_encoded_again(tmp_path, monkeypatch):
    codec = intarsia.ConditionalCodec(codecs=[ZstdCodec(level=3)])
    array = fleet.make_array(tmp_path, shape=4000, chunks=1000, shards=4000, codecs=(BytesCodec(), codec))
    slots = intarsia.slotted(array)
    slots[:3000] = 1
    prepare = Recoding.prepare

    def prepared_too_early(self, path):
        made = prepare(self, path)
        slots[500:2500] = 2  # changes two chunks, one of them in part
        slots[3000:] = 3
        slots[:1000] = 0  # and one is gone
        return made

    monkeypatch.setattr(Recoding, "prepare", prepared_too_early)
    intarsia.compact(array, decision="compress_if_smaller")
    assert np.array_equal(array[:], np.repeat([0, 2, 2, 1, 3], [1000, 1000, 500, 500, 1000]))
    assert intarsia.masks(array).filled(99).tolist() == [99, 1, 1, 1]
    assert intarsia.verify(array) == ()
