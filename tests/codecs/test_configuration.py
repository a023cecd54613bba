"""Codec lists as people write them."""

import pytest
from zarr.codecs import BytesCodec, GzipCodec, TransposeCodec, ZstdCodec

from intarsia.codecs import PackBitsCodec, parse_codecs
from intarsia.errors import CodecConfigurationError


def test_dicts_names_and_objects_may_be_mixed():
    parsed = parse_codecs(
        [TransposeCodec(order=(1, 0)), "gzip", {"name": "zstd", "configuration": {"level": 3}}]
    )
    assert parsed == (
        TransposeCodec(order=(1, 0)),
        BytesCodec(endian="little"),
        GzipCodec(),
        ZstdCodec(level=3),
    )
    assert parse_codecs([]) == (BytesCodec(endian="little"),)
    assert parse_codecs(["packbits"]) == (PackBitsCodec(),)


@pytest.mark.parametrize(
    ("codecs", "match"),
    [
        (["gzip", "bytes"], "are no chain"),
        (["bytes", "packbits"], "are no chain"),
        ([3], "3 is not a codec"),
        ([{"configuration": {}}], "is not a codec"),
        ([{"name": "gzip", "configuration": {"level": 99}}], "codec 'gzip': .*99"),
        ([{"name": "shuffle", "configuration": [4]}], r"configuration: \[4\] is not an object"),
    ],
)
def test_what_is_not_a_codec_list_is_refused(codecs, match):
    with pytest.raises(CodecConfigurationError, match=match):
        parse_codecs(codecs)
