"""A second reading of the `conditional` format, written from its registered text with numcodecs alone."""

import google_crc32c
import numcodecs
import numpy as np


def crc32c_decode(data):
    content, said = data[:-4], int.from_bytes(data[-4:], "little")
    assert google_crc32c.value(content) == said
    return content


def decode(codec, data):
    """What the codec object `codec` of a zarr.json decodes `data` to."""
    name, configuration = codec["name"], codec.get("configuration", {})
    if name in ("conditional", "optional"):
        return conditional(configuration, data)[1]
    if name == "shuffle":
        return bytes(numcodecs.Shuffle(configuration["element_size"]).decode(np.frombuffer(data, "u1")))
    if name == "crc32c":
        return crc32c_decode(data)
    if name == "pad":
        n = configuration["nbytes"]
        return data[n:] if configuration["location"] == "start" else data[: len(data) - n]
    numcodec = {"zstd": numcodecs.Zstd, "gzip": numcodecs.GZip, "blosc": numcodecs.Blosc}.get(name)
    if numcodec is None:
        numcodec = type(numcodecs.get_codec({"id": name.removeprefix("numcodecs.")}))
    return bytes(numcodec().decode(data))


def conditional(configuration, data):
    """The bitmask of an encoded chunk, and the decoded chunk."""
    codecs = configuration["codecs"]
    header_bits = configuration.get("header_bits", -(-len(codecs) // 8) * 8)
    mask = int.from_bytes(data[: header_bits // 8], "little")
    data = bytes(data[header_bits // 8 :])
    for position in reversed(range(len(codecs))):
        if mask >> position & 1:
            data = decode(codecs[position], data)
    return mask, data
