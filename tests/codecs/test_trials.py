"""Decisions that try: what they keep, and how often they run a codec."""

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.dtype import Float32

from intarsia.codecs import ConditionalCodec, PadCodec, Sampled, ShuffleCodec, Smallest
from intarsia.codecs.decisions import CompressIfSmaller
from intarsia.errors import CodecConfigurationError

LITTLE = BytesCodec(endian="little")
RNG = np.random.default_rng(7)
NOISE = RNG.bytes(1 << 20)
SMOOTH = np.sin(np.linspace(0, 40, 1 << 18)).astype("f4").tobytes()
SHUFFLE, ZSTD = ShuffleCodec(element_size=4), ZstdCodec(level=3)


def encode(decision, codecs, data):
    codec = ConditionalCodec(codecs=codecs, decision=decision)
    spec = ArraySpec(
        (len(data) // 4,), Float32(), np.float32(0), ArrayConfig.from_dict({}), default_buffer_prototype()
    )
    stored = codec._encode_sync(spec.prototype.buffer.from_bytes(data), spec)
    assert codec._decode_sync(stored, spec).to_bytes() == data
    return stored.to_bytes()[0], len(stored) - 1


@pytest.fixture
def runs(monkeypatch):
    """Which codecs encoded how many bytes."""
    seen = []
    for cls in (ZstdCodec, GzipCodec, ShuffleCodec, Crc32cCodec):

        def counted(self, data, spec, original=cls._encode_sync):
            seen.append((self.to_dict()["name"], len(data)))
            return original(self, data, spec)

        monkeypatch.setattr(cls, "_encode_sync", counted)
    return seen


def test_noise_stays_as_it_is(runs):
    assert encode("compress_if_smaller", [SHUFFLE, ZSTD], NOISE) == (0, len(NOISE))
    assert runs == [("shuffle", len(NOISE)), ("zstd", len(NOISE))]


def test_a_filter_applies_with_the_compressor_after_it(runs):
    mask, size = encode("compress_if_smaller", [SHUFFLE, ZSTD], SMOOTH)
    assert mask == 0b11
    assert len(runs) == 2
    assert size < encode("compress_if_smaller", [ZSTD], SMOOTH)[1]


def test_a_filter_alone_does_not_apply():
    assert encode("compress_if_smaller", [SHUFFLE], SMOOTH) == (0, len(SMOOTH))
    assert encode("compress_if_smaller", [ZSTD, ShuffleCodec(element_size=1)], SMOOTH)[0] == 0b01


def test_a_codec_that_adds_bytes_does_not_apply():
    assert encode("compress_if_smaller", [Crc32cCodec(), ZSTD, Crc32cCodec()], SMOOTH)[0] == 0b010
    assert encode("compress_if_smaller", [PadCodec(location="end", nbytes=1)], SMOOTH)[0] == 0
    assert encode("compress_if_smaller", [ZSTD, GzipCodec()], bytes(10_000))[0] == 0b01  # nothing left to win


def test_a_codec_that_cannot_work_on_a_chunk_is_skipped():
    data = bytes(4001)
    assert encode("compress_if_smaller", [SHUFFLE, ZSTD], data)[0] == 0b10
    assert encode("smallest", [SHUFFLE, ZSTD], data)[0] == 0b10
    assert encode("sampled", [SHUFFLE, ZSTD], bytes((1 << 20) + 1))[0] == 0b10
    with pytest.raises(ValueError, match="multiple of element_size"):
        encode("always_apply", [SHUFFLE, ZSTD], data)


def test_smallest_finds_the_best_of_all_combinations():
    sets = [
        NOISE,
        SMOOTH,
        bytes(100_000),
        np.arange(50_000, dtype="f4").tobytes(),
        b"words and words " * 5000,
    ]
    chain = [SHUFFLE, ShuffleCodec(element_size=2), GzipCodec(level=6), ZSTD]
    for data in sets:
        sizes = {}
        for mask in range(16):
            sizes[mask] = encode(lambda codec_index, m=mask: m >> codec_index & 1, chain, data)[1]
        mask, size = encode("smallest", chain, data)
        assert size == sizes[mask] == min(sizes.values())
        assert mask.bit_count() == min(m.bit_count() for m, n in sizes.items() if n == size)


@pytest.mark.parametrize("trials", [1, 2, 5, 64])
def test_smallest_stops_after_its_trials(trials, runs):
    encode(Smallest(trials=trials), [ZSTD] * 12, SMOOTH[:4096])
    assert len(runs) <= trials


def test_smallest_with_64_codecs_is_bounded():
    _, size = encode("smallest", [Crc32cCodec()] * 62 + [SHUFFLE, ZSTD], SMOOTH[:8192])
    assert size <= 8192 + 7  # the header has 8 bytes here


def test_sampled_looks_at_little_of_noise(runs):
    assert encode("sampled", [SHUFFLE, ZstdCodec(level=9)], NOISE) == (0, len(NOISE))
    assert sum(size for _, size in runs) < len(NOISE) / 16


def test_sampled_compresses_what_promises_something(runs):
    assert encode("sampled", [SHUFFLE, ZSTD], SMOOTH) == encode(
        "compress_if_smaller", [SHUFFLE, ZSTD], SMOOTH
    )


def test_sampled_finds_what_lies_between_the_samples():
    data = bytearray(NOISE)
    data[20_000:90_000] = bytes(70_000)
    mask, size = encode("sampled", [ZSTD], bytes(data))
    assert mask == 1
    assert size < len(NOISE) - 60_000


def test_sampled_gives_the_same_answer_every_time():
    data = [RNG.bytes(k) + bytes((1 << 19) - k) for k in range(450_000, 1 << 19, 9973)]
    assert [encode("sampled", [ZSTD], d) for d in data] == [encode("sampled", [ZSTD], d) for d in data]


def test_sampled_tries_everything_on_small_chunks(runs):
    encode("sampled", [ZSTD], NOISE[:8192])
    assert runs == [("zstd", 8192)]


@pytest.mark.parametrize(
    "fields",
    [
        {"samples": 0},
        {"samples": 1.5},
        {"sample_bytes": -1},
        {"sample_bytes": True},
        {"min_saving": 1},
        {"min_saving": -1},
    ],
)
def test_parameters_of_sampled_are_checked(fields):
    with pytest.raises(CodecConfigurationError, match=next(iter(fields))):
        Sampled(**fields)


def test_parameters_of_smallest_are_checked():
    with pytest.raises(CodecConfigurationError, match="trials"):
        Smallest(trials=0)


@pytest.mark.parametrize("samples", [1, 2, 7])
@pytest.mark.parametrize("sample_bytes", [1, 100, 5000])
def test_sampled_with_other_parameters(samples, sample_bytes):
    decision = Sampled(samples=samples, sample_bytes=sample_bytes)
    assert encode(decision, [SHUFFLE, ZSTD], SMOOTH)[0] in (0b00, 0b11)
    assert encode(decision, [SHUFFLE, ZSTD], NOISE) == (0, len(NOISE))


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
def test_the_quick_look_uses_the_fastest_level():
    from zarr.codecs import BloscCodec
    from zarr.codecs.numcodecs import BZ2, LZMA

    from intarsia.codecs.nested import NamedCodec

    assert NamedCodec(ZstdCodec(level=19, checksum=True)).fastest.codec == ZstdCodec(level=1, checksum=True)
    assert NamedCodec(GzipCodec(level=9)).fastest.codec == GzipCodec(level=1)
    assert NamedCodec(BloscCodec(typesize=4, clevel=9, shuffle="shuffle")).fastest.codec.clevel == 1
    assert NamedCodec(BZ2(level=9)).fastest.codec.codec_config["level"] == 1
    for same in (ZstdCodec(level=-3), Crc32cCodec(), LZMA(preset=9)):
        assert NamedCodec(same).fastest.codec is same


def test_on_a_mix_every_chunk_is_as_small_as_the_better_choice():
    chunk = 1 << 16
    data = np.frombuffer(NOISE[: 8 * chunk] + SMOOTH[: 8 * chunk], dtype="f4")
    sizes = {}
    for name, codecs in {
        "raw": [LITTLE],
        "zstd": [LITTLE, ZSTD],
        "ours": [LITTLE, ConditionalCodec(codecs=[ZSTD], decision=CompressIfSmaller())],
    }.items():
        z = zarr.create(store={}, shape=data.size, chunks=chunk // 4, dtype="f4", codecs=codecs)
        z[:] = data
        sizes[name] = [len(z.store_path.store._store_dict[f"c/{i}"]) for i in range(16)]
    best = [min(raw, zstd) + 1 for raw, zstd in zip(sizes["raw"], sizes["zstd"], strict=True)]
    assert sizes["ours"] == best
