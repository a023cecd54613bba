"""Encoders that know nothing of intarsia: NumPy, the standard library, and the text of the specifications.

Compressed frames are put together by hand (gzip of stored blocks, zstd of raw and of repeated ones), so that
no version of a compressor changes a byte of the vectors.
"""

import base64
import struct
import zlib
from itertools import product
from math import prod

import numpy as np

NOTHING = 2**64 - 1
"""Offset and length of a chunk that a shard does not hold."""


def crc32c(data):
    """The Castagnoli checksum, bit by bit."""
    remainder = 0xFFFFFFFF
    for octet in data:
        remainder ^= octet
        for _ in range(8):
            remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF


def gzip(data):
    """A gzip member of one stored block."""
    block = struct.pack("<BHH", 1, len(data), len(data) ^ 0xFFFF) + data
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + block + struct.pack("<II", zlib.crc32(data), len(data))


def zstd(data):
    """A zstd frame of one block: one repeated byte if that will do, otherwise the bytes as they are."""
    repeated = len(data) > 1 and len(set(data)) == 1
    block = len(data) << 3 | repeated << 1 | 1
    frame = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(data)) + block.to_bytes(3, "little")
    return frame + (data[:1] if repeated else data)


def shuffle(data, element_size):
    """Byte j of every element beside byte j of the others."""
    return np.frombuffer(data, "u1").reshape(-1, element_size).T.tobytes()


def pad(data, configuration):
    """The literal bytes before or behind the data: zeros by default, marks that nobody may read for null."""
    nbytes = configuration["nbytes"]
    text = configuration.get("padding", base64.b64encode(bytes(nbytes)))
    padding = bytes([0xA5]) * nbytes if text is None else base64.b64decode(text)
    return padding + data if configuration["location"] == "start" else data + padding


def packbits(values, configuration):
    """Some bits of every element, one after the other; the bits of floats, and two floats for a complex."""
    if values.dtype.kind in "fc":
        values = np.ascontiguousarray(values)
        values = values.view(f"u{values.dtype.itemsize // (2 if values.dtype.kind == 'c' else 1)}")
    width = 1 if values.dtype == bool else 8 * values.dtype.itemsize
    first = configuration.get("first_bit") or 0
    last = configuration.get("last_bit")
    last = width - 1 if last is None else last
    sequence = position = 0
    for value in values.reshape(-1).tolist():
        kept = (int(value) % (1 << width)) >> first & ((1 << last - first + 1) - 1)
        sequence |= kept << position
        position += last - first + 1
    packed = sequence.to_bytes(-(-position // 8), "little")
    padding = bytes([-position % 8])
    where = configuration.get("padding_encoding", "none")
    return padding * (where == "first_byte") + packed + padding * (where == "last_byte")


def strings(values):
    """`vlen-utf8`: how many, and each with its length before it."""
    texts = [text.encode() for text in values.reshape(-1).tolist()]
    return struct.pack("<I", len(texts)) + b"".join(struct.pack("<I", len(text)) + text for text in texts)


def dtype_of(data_type):
    """The NumPy type of a data type; objects for what can be null, and for texts."""
    if isinstance(data_type, dict) or data_type == "string":
        return np.dtype(object)
    return np.dtype(data_type)


class Encoder:
    """Encodes chunks; remembers how many each `conditional` has seen, to choose its bitmasks in turn."""

    def __init__(self, fill_value):
        self._fill_value = fill_value
        self._seen = {}

    def chunk(self, values, data_type, codecs):
        """One encoded chunk of `values`, which is not cut at any edge."""
        at = next(i for i, codec in enumerate(codecs) if self._makes_bytes(codec))
        for codec in codecs[:at]:
            values = _filtered(values, codec)
        return self.octets(self._serialized(values, data_type, codecs[at]), codecs[at + 1 :])

    @staticmethod
    def _makes_bytes(codec):
        made = {"bytes", "packbits", "sharding_indexed", "vlen-utf8"}
        return codec["name"] in made or "mask_codecs" in codec.get("configuration", {})

    def octets(self, data, codecs):
        """Bytes through bytes -> bytes codecs."""
        for codec in codecs:
            data = self._octets(data, codec)
        return data

    def _octets(self, data, codec):
        codec = {"name": codec} if isinstance(codec, str) else codec
        name, configuration = codec["name"], codec.get("configuration", {})
        if name == "crc32c":
            return data + struct.pack("<I", crc32c(data))
        if name in ("gzip", "zstd"):
            return {"gzip": gzip, "zstd": zstd}[name](data)
        if name in ("shuffle", "numcodecs.shuffle"):
            return shuffle(data, configuration.get("element_size") or configuration["elementsize"])
        if name == "pad":
            return pad(data, configuration)
        if name == "offset":
            said = {"padding": configuration["prefix"]} if "prefix" in configuration else {}
            return pad(data, {"location": "start", "nbytes": configuration["offset"], **said})
        return self._conditional(data, codec)

    def _conditional(self, data, codec):
        nested = codec["configuration"]["codecs"]
        header = codec["configuration"].get("header_bits", -(-len(nested) // 8) * 8)
        number = self._seen[id(codec)] = self._seen.get(id(codec), -1) + 1
        masks = codec.get("_masks", [0])
        mask = masks[number % len(masks)]
        applied = [inner for i, inner in enumerate(nested) if mask >> i & 1]
        return mask.to_bytes(header // 8, "little") + self.octets(data, applied)

    def _serialized(self, values, data_type, codec):
        name, configuration = codec["name"], codec.get("configuration", {})
        if name == "packbits":
            return packbits(values, configuration)
        if name == "vlen-utf8":
            return strings(values)
        if name == "sharding_indexed":
            return self._shard(values, data_type, configuration)
        if name != "bytes":
            return self._optional(values, data_type, configuration)
        order = {"little": "<", "big": ">"}[configuration.get("endian", "little")]
        return np.ascontiguousarray(values).astype(values.dtype.newbyteorder(order)).tobytes()

    def _optional(self, values, data_type, configuration):
        inner = data_type["configuration"]
        inner = inner if inner["name"] in ("optional", "zarrs.optional") else inner["name"]
        present = np.array([e is not None for e in values.reshape(-1)], dtype=bool).reshape(values.shape)
        mask = self.chunk(present, "bool", configuration["mask_codecs"])
        kept = np.empty(int(present.sum()), dtype=dtype_of(inner))
        for i, element in enumerate(e for e in values.reshape(-1) if e is not None):
            kept[i] = element[0]
        data = self.chunk(kept, inner, configuration["data_codecs"]) if kept.size else b""
        return struct.pack("<QQ", len(mask), len(data)) + mask + data

    def _shard(self, values, data_type, configuration):
        inner = configuration["chunk_shape"]
        grid = [n // c for n, c in zip(values.shape, inner, strict=True)]
        index = np.full((*grid, 2), NOTHING, dtype="<u8")
        at_start = configuration.get("index_location", "end") == "start"
        index_size = index.nbytes + 4 * sum(c["name"] == "crc32c" for c in configuration["index_codecs"])
        content = b""
        for cell in product(*map(range, grid)):
            box = tuple(slice(i * c, (i + 1) * c) for i, c in zip(cell, inner, strict=True))
            if _is_fill(values[box], self._fill_value):
                continue
            encoded = self.chunk(values[box], data_type, configuration["codecs"])
            index[cell] = len(content) + index_size * at_start, len(encoded)
            content += encoded
        encoded = self.octets(index.tobytes(), configuration["index_codecs"][1:])
        return encoded + content if at_start else content + encoded


def _is_fill(values, fill_value):
    if values.dtype == object:
        return all(element == fill_value for element in values.reshape(-1))
    return bool((values == fill_value).all())


def _filtered(values, codec):
    """Through an array -> array codec."""
    configuration = codec["configuration"]
    if codec["name"] == "transpose":
        return values.transpose(configuration["order"])
    if codec["name"] == "reshape":
        sizes = configuration["shape"]
        shape = [prod(values.shape[axis] for axis in s) if isinstance(s, list) else s for s in sizes]
        return np.ascontiguousarray(values).reshape(shape)
    if codec["name"] == "scale_offset":
        return (values - values.dtype.type(configuration["offset"])) * values.dtype.type(
            configuration["scale"]
        )
    assert codec["name"] == "cast_value", codec
    return values.astype(configuration["data_type"])


def chunks_of(values, chunk_shape, fill_value):
    """Every chunk's place in the grid and its values, filled up at the edges."""
    grid = [-(-n // c) for n, c in zip(values.shape, chunk_shape, strict=True)]
    for cell in product(*map(range, grid)):
        box = tuple(slice(i * c, (i + 1) * c) for i, c in zip(cell, chunk_shape, strict=True))
        part = values[(*box, ...)]  # the ellipsis keeps an array without axes an array
        flat = np.empty(prod(chunk_shape), dtype=values.dtype)
        for i in range(flat.size):  # one by one: a fill value may be a list
            flat[i] = fill_value
        chunk = flat.reshape(chunk_shape)
        chunk[(*(slice(0, n) for n in part.shape), ...)] = part
        yield cell, chunk
