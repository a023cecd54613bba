"""The three examples of the codec's proposal, as written but for imports, missing names and smaller arrays.

What zarr-python does not have: `zarr.open(codecs=…)` with live codecs, for which there is `with_decision`,
and the method `iter_chunk_slices`, for which there is a function of that name.
"""

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec as Bytes
from zarr.codecs import Crc32cCodec as Crc32c

from intarsia.codecs import OptionalCodec, iter_chunk_slices, masks, rewrite, with_decision


def decide_based_on_size(chunk_index, codec, unencoded_chunk, trial_encoded_chunk):
    """Returns True to apply the codec, False to skip it."""
    if codec.name == "shuffle":
        return True  # Always apply shuffle
    return len(trial_encoded_chunk) < len(unencoded_chunk)


def disable_all_codecs(chunk_index, codec, unencoded_chunk):
    """A simple function that disables every codec it's called with."""
    return False


def test_example_1_preventing_compression_inflation(our_pipeline):
    optional_codec = OptionalCodec(
        # Serializable configuration
        configuration={
            "codecs": [
                {"name": "shuffle", "configuration": {"element_size": 4}},
                {"name": "zstd", "configuration": {"level": 5}},
            ]
        },
        # Runtime configuration
        decision_function=decide_based_on_size,
        trial_encode=True,
    )
    z = zarr.create(
        shape=(10000, 10000),
        chunks=(1000, 1000),
        dtype="f4",
        codecs=[
            Bytes(endian="little"),
            optional_codec,  # Pass the fully configured object
            Crc32c(),
        ],
    )
    smooth = np.linspace(0, 1, 1000 * 1000).reshape(1000, 1000).astype("f4")
    noise = np.random.default_rng(0).integers(0, 2**32, (1000, 1000), dtype="u4").view("f4")
    z[0:1000, 0:1000] = smooth
    z[0:1000, 1000:2000] = noise
    found = masks(z)
    assert found.count() == 2
    assert found[0, :2].tolist() == [0b11, 0b01]
    np.testing.assert_array_equal(z[0:1000, 0:1000], smooth)
    np.testing.assert_array_equal(z[0:1000, 1000:2000].view("u4"), noise.view("u4"))


@pytest.mark.parametrize("how", ["slice by slice", "rewrite"])
def test_example_2_write_fast_compress_later(how, tmp_path, monkeypatch, our_pipeline):
    monkeypatch.chdir(tmp_path)
    configuration = {
        "codecs": [
            {"name": "shuffle", "configuration": {"element_size": 4}},
            {"name": "zstd", "configuration": {"level": 5}},
        ]
    }
    # Phase 1
    ingest_codec = OptionalCodec(
        configuration=configuration, decision_function=disable_all_codecs, trial_encode=False
    )
    z = zarr.create(
        store="my_data.zarr",
        shape=(0, 1000),
        chunks=(100, 100),
        dtype="f4",
        codecs=[Bytes(endian="little"), ingest_codec, Crc32c()],
    )
    real_time_data_stream = [
        np.linspace(k, k + 1, 50 * 1000).reshape(50, 1000).astype("f4") for k in range(6)
    ]
    for data_batch in real_time_data_stream:
        z.append(data_batch)
    assert masks(z).tolist() == [[0] * 10] * 3
    metadata = (tmp_path / "my_data.zarr/zarr.json").read_bytes()

    # Phase 2
    optimizing_codec = OptionalCodec(
        configuration=configuration, decision_function=decide_based_on_size, trial_encode=True
    )
    z = with_decision(zarr.open("my_data.zarr", mode="r+"), optimizing_codec)
    if how == "rewrite":
        rewrite(z)
    else:
        for chunk_slice in iter_chunk_slices(z):
            z[chunk_slice] = z[chunk_slice]
    assert masks(z).tolist() == [[0b11] * 10] * 3
    assert (tmp_path / "my_data.zarr/zarr.json").read_bytes() == metadata
    np.testing.assert_array_equal(
        zarr.open("my_data.zarr", mode="r")[:], np.concatenate(real_time_data_stream)
    )


def test_example_3_precomputed_optimization_plans(our_pipeline):
    noise = np.random.default_rng(0).integers(0, 2**64, (100, 100), dtype="u8").view("f8")

    def read_raw_data_for_chunk(i, j):
        return noise if (i + j) % 3 == 0 else np.full((100, 100), i * 10.0 + j + 1)

    def has_high_entropy(raw_chunk_data):
        return np.unique(raw_chunk_data.view("u8")).size > raw_chunk_data.size / 2

    def analyze_chunk_for_optimal_codecs(raw_chunk_data):
        # If the chunk has high entropy or is otherwise uncompressible, store it raw.
        if has_high_entropy(raw_chunk_data):
            return 0b00
        # Otherwise, apply the full shuffle + compress pipeline.
        else:  # noqa: RET505
            return 0b11

    precomputed_bitmasks = np.empty((10, 10), dtype=np.uint8)
    for i in range(10):
        for j in range(10):
            raw_chunk = read_raw_data_for_chunk(i, j)
            precomputed_bitmasks[i, j] = analyze_chunk_for_optimal_codecs(raw_chunk)

    def apply_precomputed_mask(chunk_index, codec_index, codec, unencoded_chunk):
        """Looks up the decision from the pre-computed array."""
        # Get the integer mask for the entire chunk.
        mask_for_chunk = precomputed_bitmasks[chunk_index]

        # Check if the bit for the current codec_index is set.
        is_enabled = (mask_for_chunk >> codec_index) & 1

        return bool(is_enabled)

    lookup_codec = OptionalCodec(
        configuration={
            "codecs": [
                {"name": "shuffle", "configuration": {"element_size": 4}},
                {"name": "zstd", "configuration": {"level": 5}},
            ]
        },
        decision_function=apply_precomputed_mask,
        trial_encode=False,
    )
    z = zarr.create(shape=(1000, 1000), chunks=(100, 100), codecs=[Bytes(), lookup_codec])
    for i in range(10):
        for j in range(10):
            chunk_slice = np.s_[i * 100 : (i + 1) * 100, j * 100 : (j + 1) * 100]
            z[chunk_slice] = read_raw_data_for_chunk(i, j)

    np.testing.assert_array_equal(masks(z), precomputed_bitmasks)
    assert set(np.unique(precomputed_bitmasks)) == {0b00, 0b11}
    for i, j in ((0, 0), (4, 7)):
        stored = z[i * 100 : (i + 1) * 100, j * 100 : (j + 1) * 100]
        assert stored.tobytes() == read_raw_data_for_chunk(i, j).tobytes()
