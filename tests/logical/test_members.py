"""Members: what is planned is what is created."""

import pytest

import intarsia
from intarsia.logical.encoding import Encoding, create_member, encoding_of, planned_metadata

ENCODINGS = {
    "zarr's choice": Encoding(),
    "codecs": Encoding(["zstd"]),
    "no codecs": Encoding([]),
    "element sizes": Encoding(["blosc"]),
    "shards": Encoding(["gzip"], chunks=(1, 2), shards=(4, 4)),
    "shards of zarr's choice": Encoding(shards=(4, 4)),
    "a fill value": Encoding(["zstd"], fill_value=1),
}


@pytest.mark.parametrize("dtype", ["float32", "uint8", "optional[int16]"])
@pytest.mark.parametrize("name", ENCODINGS)
def test_a_planned_member_is_encoded_as_the_one_that_is_created(name, dtype):
    manifest = intarsia.create({}, "a", shape=(8, 4), chunks=(2, 4), dtype=dtype).manifest
    member = create_member({}, None, manifest, (8, 4), ENCODINGS[name])
    planned = planned_metadata(manifest, (8, 4), ENCODINGS[name])
    assert encoding_of(planned) == encoding_of(member.metadata)


def test_a_planned_member_that_is_packed():
    manifest = intarsia.create({}, "a", shape=(8,), chunks=(2,), dtype="float32").manifest
    encoding = Encoding(["zstd"], packing=intarsia.Packing("int16", scale=0.5, missing=-1))
    member = create_member({}, None, manifest, (8,), encoding)
    assert encoding_of(planned_metadata(manifest, (8,), encoding)) == encoding_of(member.metadata)


def test_a_member_of_a_failed_append_is_not_listed():
    array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="uint8")
    array.append([1, 2])
    with pytest.raises(intarsia.errors.PackingError):
        array.append([1, 2], packing={"stored": "uint8", "scale": 2, "values": "uint8"}, merge=False)
    assert list(array.members) == [array.regions[0].name]
