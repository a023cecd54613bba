"""What messages about codecs suggest, in their own words, is done and helps."""

import numpy as np
import pytest
import zarr

import intarsia
from intarsia.codecs import ConditionalCodec, PadCodec, extend_codecs, with_decision, with_padding
from intarsia.errors import IntarsiaError
from tests.suggestions import follow


def header(data):
    return bytes([len(data)]) * 4


def created(store, *compressors, **options):
    options = {"shape": (4,), "chunks": (2,), "dtype": "u1"} | options
    return zarr.create_array(store, compressors=compressors, **options)


def test_bytes_that_a_function_computes():
    array = zarr.open_array(created({}, PadCodec(location="start", nbytes=4, padding_func=header)).store)
    with pytest.raises(IntarsiaError) as error:
        array[:] = 1
    follow(error, "intarsia.codecs.with_padding(array, bytes(4))", array=array)[:] = 2
    assert array[:].tolist() == [2, 2, 2, 2]
    follow(error, "intarsia.codecs.with_padding(array, function)", array=array, function=header)[:] = 1
    assert array[:].tolist() == [1, 1, 1, 1]
    with pytest.raises(IntarsiaError) as error:
        with_padding(array, None, verify_header=True)[:]
    assert "intarsia.codecs.with_padding(array, function)" in str(error.value)
    assert with_padding(array, header, verify_header=True)[:].tolist() == [1, 1, 1, 1]


def test_a_decision_that_is_not_known():
    array = created({}, ConditionalCodec(codecs=["gzip"]))
    array.attrs["intarsia_decision"] = "by the moon"
    array = zarr.open_array(array.store)
    with pytest.raises(IntarsiaError) as error:
        array[:] = 1
    code = "intarsia.codecs.with_decision(array, decision, remember=True)"
    follow(error, code, array=array, decision="always_apply")[:] = 1
    again = zarr.open_array(array.store)
    again[:2] = 2
    assert again[:].tolist() == [2, 2, 1, 1]


def test_codecs_that_an_array_does_not_have():
    array = created({}, ConditionalCodec(codecs=["gzip"], header_bits=8), dtype="u1")
    array[:] = 1
    codec = ConditionalCodec(codecs=["gzip", "zstd"])
    with pytest.raises(IntarsiaError) as error:
        with_decision(array, codec)
    code = "intarsia.codecs.extend_codecs(array, codecs)"
    extended = follow(error, code, array=array, codecs=["zstd"])
    with_decision(extended, codec)[:2] = 2
    assert zarr.open_array(array.store)[:].tolist() == [2, 2, 1, 1]
    with pytest.raises(IntarsiaError, match=r"Create an array with header_bits=16 or more"):
        extend_codecs(extended, ["zstd"] * 7)
    roomy = created({}, ConditionalCodec(codecs=["gzip"], header_bits=16))
    assert extend_codecs(roomy, ["zstd"] * 7)


def test_a_plan_for_an_array_of_many_grids(tmp_path):
    arr = intarsia.create(tmp_path / "s", "a", shape=(4,), chunks=(2,), dtype="u1")
    arr.add_region(((0, 4),), codecs=[ConditionalCodec(codecs=["gzip"])], data=np.ones(4, "u1"))
    plan = np.array([1, 0], "u1")
    with pytest.raises(IntarsiaError) as error:
        with_decision(arr, plan)
    (name,) = arr.members
    code = "intarsia.codecs.with_decision(arr.members[name], plan)"
    follow(error, code, arr=arr, name=name, plan=plan)[:] = 3
    assert arr[...].tolist() == [3, 3, 3, 3]


def test_a_pipeline_that_does_not_know_the_chunk():
    def decide(chunk_index, codec):
        return bool(chunk_index[0])

    codec = ConditionalCodec(codecs=["zstd"], decision=decide)
    array = created({}, codec)
    stock = "zarr.core.codec_pipeline.BatchedCodecPipeline"
    with zarr.config.set({"codec_pipeline.path": stock}), pytest.MonkeyPatch.context() as patch:
        patch.setattr("intarsia.codecs.base.COUNTERPARTS", {})
        foreign = with_decision(zarr.open_array(array.store), decide)
        with pytest.raises(IntarsiaError) as error:
            foreign[:] = 1
        code = "zarr.config.set({'codec_pipeline.path': 'intarsia.codecs.context.BatchedPipeline'})"
        follow(error, code, zarr=zarr)
        with_decision(zarr.open_array(array.store), decide)[:] = 1
    assert intarsia.codecs.masks(array).tolist() == [0, 1]
