"""Every codec against an implementation that was written from the documents alone, in both directions.

Random arrays are written by zarr with intarsia's codecs, and the stored bytes have to be those of
`standard.vectors.generate.encode`, which knows nothing of intarsia. Then these bytes are read. Compressors
are left out, because two of them seldom agree on bytes; the vectors have them.
"""

import base64
import json

import numpy as np
import pytest
import zarr
from standard.vectors.generate.encode import Encoder
from zarr.core.buffer.cpu import Buffer
from zarr.storage import MemoryStore

from intarsia import nullable
from intarsia.codecs import with_decision

TYPES = ["int8", "uint16", "int32", "uint64", "float16", "float32", "float64", "complex64", "complex128"]


@pytest.fixture(params=[30, pytest.param(5_000, marks=pytest.mark.torture)])
def cases(request):
    """A generator of random numbers for each case, so that a failing one can be repeated by its number."""
    return (np.random.default_rng([request.param, number]) for number in range(request.param))


def little(dtype="int32"):
    return {"name": "bytes"} | ({} if dtype in ("bool", "int8") else {"configuration": {"endian": "little"}})


def random_values(rng, shape, data_type):
    """Any bits; bools are 0 and 1."""
    if data_type == "bool":
        return rng.random(shape) < 0.5
    dtype = np.dtype(data_type)
    octets = rng.integers(0, 256, (*shape, dtype.itemsize), dtype="u1")
    return octets.view(dtype).reshape(shape)


def random_shape(rng):
    return tuple(int(size) for size in rng.integers(1, 6, rng.integers(1, 4)))


def random_bytes(rng, count):
    return base64.b64encode(rng.bytes(count)).decode()


def random_pad(rng):
    configuration = {"location": str(rng.choice(["start", "end"])), "nbytes": int(rng.integers(0, 40))}
    if rng.random() < 0.7:
        configuration["padding"] = random_bytes(rng, configuration["nbytes"])
    return {"name": "pad", "configuration": configuration}


def random_offset(rng):
    configuration = {"offset": int(rng.integers(0, 40))}
    if rng.random() < 0.7:
        configuration["prefix"] = random_bytes(rng, configuration["offset"])
    return {"name": "offset", "configuration": configuration}


def random_shuffle(rng, nbytes):
    sizes = [size for size in range(1, 17) if nbytes % size == 0]
    return {"name": "shuffle", "configuration": {"element_size": int(rng.choice(sizes))}}


def random_packbits(rng, data_type):
    dtype = np.dtype(data_type)
    width = 1 if data_type == "bool" else dtype.itemsize * 8 // (2 if dtype.kind == "c" else 1)
    configuration = {}
    if rng.random() < 0.7:
        configuration["padding_encoding"] = str(rng.choice(["none", "first_byte", "last_byte"]))
    if rng.random() < 0.6:
        configuration["first_bit"] = int(rng.integers(0, width))
    if rng.random() < 0.6:
        configuration["last_bit"] = int(rng.integers(configuration.get("first_bit", 0), width))
    return {"name": "packbits", "configuration": configuration}


def random_reshape(rng, shape):
    """Axes joined, named, spelled out or left open; always one that fits."""
    groups, axis = [], 0
    while axis < len(shape):
        count = int(rng.integers(1, len(shape) - axis + 1))
        groups.append(list(range(axis, axis + count)))
        axis += count
    sizes = [group if rng.random() < 0.5 else int(np.prod([shape[i] for i in group])) for group in groups]
    if rng.random() < 0.4:
        sizes[int(rng.integers(0, len(sizes)))] = -1
    return {"name": "reshape", "configuration": {"shape": sizes}}


def random_conditional(rng, depth=0):
    choices = [{"name": "crc32c"}, {"name": "shuffle", "configuration": {"element_size": 1}}, random_pad(rng)]
    choices += [random_conditional(rng, depth + 1)] if depth < 2 else []
    nested = [choices[i] for i in rng.integers(0, len(choices), rng.integers(0, 5))]
    configuration = {"codecs": nested}
    if rng.random() < 0.5:
        configuration["header_bits"] = 8 * int(rng.integers(-(-len(nested) // 8), 4))
    return {"name": "conditional", "configuration": configuration}


def stored_array(values, data_type, codecs, fill_value=0, decision=None):
    """The store and the array after writing `values` as one chunk."""
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(values.shape),
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(values.shape)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_value,
        "codecs": codecs,
        "attributes": {},
    }
    store = MemoryStore({"zarr.json": Buffer.from_bytes(json.dumps(document).encode())})
    array = zarr.open_array(store, config={"write_empty_chunks": True})
    return store, array if decision is None else with_decision(array, decision)


def chunk_key(values):
    return "/".join(["c", *["0"] * values.ndim])


def check(values, data_type, codecs, expected, referee=None, decision=None):
    """Both directions: the stored bytes, and what is read from the referee's bytes."""
    fill = [0.0, 0.0] if data_type.startswith("complex") else False if data_type == "bool" else 0
    store, array = stored_array(values, data_type, codecs, fill, decision)
    encoded = Encoder(fill).chunk(values, data_type, referee or codecs)
    array[...] = values
    assert store._store_dict[chunk_key(values)].to_bytes() == encoded, codecs
    store._store_dict[chunk_key(values)] = Buffer.from_bytes(encoded)
    read = zarr.open_array(store, mode="r")[...]
    assert np.asarray(read).tobytes() == np.asarray(expected).tobytes(), codecs


@pytest.mark.parametrize("make", [random_pad, random_offset], ids=["pad", "offset"])
def test_bytes_around_chunks(make, cases):
    for rng in cases:
        data_type = str(rng.choice(TYPES))
        values = random_values(rng, random_shape(rng), data_type)
        codecs = [little(data_type), *(make(rng) for _ in range(rng.integers(1, 3)))]
        codecs += [{"name": "crc32c"}] if rng.random() < 0.3 else []
        check(values, data_type, codecs, values)


def test_shuffle(cases):
    for rng in cases:
        data_type = str(rng.choice(TYPES))
        values = random_values(rng, random_shape(rng), data_type)
        check(values, data_type, [little(data_type), random_shuffle(rng, values.nbytes)], values)


def test_reshape(cases):
    for rng in cases:
        data_type = str(rng.choice(TYPES))
        values = random_values(rng, random_shape(rng), data_type)
        check(values, data_type, [random_reshape(rng, values.shape), little(data_type)], values)


def kept_bits(values, configuration):
    """What is left of values: bits below the first are zero, the sign is extended from the last."""
    if values.dtype == bool:
        return values
    size = values.dtype.itemsize // (2 if values.dtype.kind == "c" else 1)
    bits = np.ascontiguousarray(values).reshape(-1).view(f"u{size}")
    first, last = configuration.get("first_bit", 0), configuration.get("last_bit", 8 * size - 1)
    decoded = []
    for number in bits.tolist():
        kept = number >> first & ((1 << last - first + 1) - 1)
        if values.dtype.kind == "i" and kept >> last - first:
            kept -= 1 << last - first + 1
        decoded.append((kept << first) % (1 << 8 * size))
    return np.array(decoded, f"u{size}").view(values.dtype).reshape(values.shape)


def test_packbits(cases):
    for rng in cases:
        data_type = str(rng.choice(["bool", *TYPES]))
        values = random_values(rng, random_shape(rng), data_type)
        codec = random_packbits(rng, data_type)
        check(values, data_type, [codec], kept_bits(values, codec["configuration"]))


def test_conditional(cases):
    for rng in cases:
        data_type = str(rng.choice(TYPES))
        values = random_values(rng, random_shape(rng), data_type)
        codec = random_conditional(rng)
        nested = codec["configuration"]["codecs"]
        mask = int(rng.integers(0, 1 << len(nested)))
        decision = np.full((1,) * values.ndim, mask)
        referee = [little(data_type), codec | {"_masks": [mask]}]
        check(values, data_type, [little(data_type), codec], values, referee, decision)


def test_optional(cases):
    types = ["int16", "float64", "uint8"]
    for rng in cases:
        inner, shape = str(rng.choice(types)), random_shape(rng)
        plain = random_values(rng, shape, inner)
        if inner == "float64":
            plain = np.nan_to_num(plain)
        present = rng.random(shape) < 0.7
        elements = np.empty(plain.size, dtype=object)
        for i, (value, is_there) in enumerate(
            zip(plain.reshape(-1).tolist(), present.reshape(-1), strict=True)
        ):
            elements[i] = [value] if is_there else None
        elements = elements.reshape(shape)
        data_type = {"name": "optional", "configuration": {"name": inner, "configuration": {}}}
        mask = [{"name": "packbits"}] if rng.random() < 0.5 else [{"name": "bytes"}]
        data = [little(inner if inner != "uint8" else "int8")]
        data += [random_pad(rng)] if rng.random() < 0.3 else []
        codec = {"name": "optional", "configuration": {"mask_codecs": mask, "data_codecs": data}}
        encoded = Encoder(None).chunk(elements, data_type, [codec])
        store, _ = stored_array(plain, data_type, [codec], None)
        array = nullable.open_array(store, mode="r+")
        array[...] = np.ma.masked_array(plain, ~present)
        if present.any():  # a chunk of nulls is the fill value, which need not be stored
            assert store._store_dict[chunk_key(plain)].to_bytes() == encoded, codec
        store._store_dict[chunk_key(plain)] = Buffer.from_bytes(encoded)
        read = nullable.open_array(store, mode="r")[...]
        np.testing.assert_array_equal(np.ma.getmaskarray(read), ~present)
        np.testing.assert_array_equal(np.ma.getdata(read)[present], plain[present])
