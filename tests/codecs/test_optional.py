"""The name `optional`: which codec it means."""

import json

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec

from intarsia.codecs import ConditionalCodec, OptionalCodec, with_decision
from intarsia.errors import CodecConfigurationError

FIELDS = {"codecs": [{"name": "zstd", "configuration": {"level": 5, "checksum": False}}], "header_bits": 16}


def test_with_codecs_it_is_the_conditional_codec(tmp_path):
    document = {"name": "optional", "configuration": FIELDS}
    z = zarr.create(store=tmp_path / "a", shape=100, dtype="u1", codecs=[BytesCodec(), document])
    with_decision(z, "always_apply")[:] = 1
    assert json.loads((tmp_path / "a/zarr.json").read_text())["codecs"][1] == document
    again = zarr.open_array(tmp_path / "a", mode="r+")
    np.testing.assert_array_equal(again[:], 1)
    again.attrs["kept"] = True
    assert json.loads((tmp_path / "a/zarr.json").read_text())["codecs"][1] == document
    assert again.metadata.codecs[1] == ConditionalCodec(configuration=FIELDS, name="optional")
    with_decision(again, OptionalCodec(configuration=FIELDS, decision="never_apply"))[:] = 2
    assert json.loads((tmp_path / "a/zarr.json").read_text())["codecs"][1] == document


def test_a_new_array_gets_the_registered_name(tmp_path):
    codecs = [BytesCodec(), OptionalCodec(configuration=FIELDS)]
    zarr.create(store=tmp_path / "a", shape=100, dtype="u1", codecs=codecs)
    stored = json.loads((tmp_path / "a/zarr.json").read_text())["codecs"][1]
    assert stored == {"name": "conditional", "configuration": FIELDS}


def test_both_ways_of_writing_it():
    assert OptionalCodec(codecs=[{"name": "crc32c"}]) == OptionalCodec(
        configuration={"codecs": [{"name": "crc32c"}]}
    )


@pytest.mark.parametrize(
    ("configuration", "match"),
    [
        ({}, "missing required field `codecs`"),
        ({"header_bits": 8}, "missing required field `codecs`"),
        ({"codecs": [], "mask_codecs": []}, "unknown field `codecs`"),
    ],
)
def test_a_configuration_that_means_neither_is_refused(configuration, match):
    with pytest.raises(CodecConfigurationError, match=match):
        OptionalCodec.from_dict({"name": "optional", "configuration": configuration})
