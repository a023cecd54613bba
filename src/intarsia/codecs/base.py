"""What our codecs have in common: they name chunks, work in both pipelines, and have their own threads.

Codecs as people and zarr.json write them are also parsed here, with errors that name the field.

A decision may read or write another Zarr array, for which zarr needs threads. If decisions ran in zarr's own
threads, enough of them at once would wait for each other forever. The same goes for any pool with a limit:
the other array may have a decision too, and so on. So the work of codecs never queues. It gets an idle thread
or a new one. The caller limits how much of it is under way at once, as zarr's pipelines do
(`async.concurrency`). Views are read in threads of their own: a decision may read an array through a view.
"""

import asyncio
import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from typing import Any, Literal, Self

import numpy as np
import zarr
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec, Codec
from zarr.codecs import BytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer
from zarr.errors import UnknownCodecError
from zarr.registry import get_codec_class

from intarsia._compat import codec_registries, stages
from intarsia.display import names_text
from intarsia.errors import CodecConfigurationError, IntarsiaError, no_thread

COUNTERPARTS = {
    "zarr.core.codec_pipeline.BatchedCodecPipeline": "intarsia.codecs.context.BatchedPipeline",
    "zarr.core.codec_pipeline.FusedCodecPipeline": "intarsia.codecs.context.FusedPipeline",
}


def switch_pipeline() -> None:
    """Replace zarr's pipeline in `zarr.config` by our counterpart; leave others alone.

    >>> import zarr
    >>> with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.FusedCodecPipeline"}):
    ...     switch_pipeline()
    ...     zarr.config.get("codec_pipeline.path")
    'intarsia.codecs.context.FusedPipeline'
    """
    path = zarr.config.get("codec_pipeline.path", None)  # missing while another thread resets it
    if path in COUNTERPARTS:
        zarr.config.set({"codec_pipeline.path": COUNTERPARTS[path]})


class ChunkNamingCodec:
    """A codec whose errors name the chunk. Making it, or an array with it, switches zarr's pipeline to ours.

    Whether it is made by hand, from a zarr.json or from a pickle: each way goes through `__new__`. A process
    that meets none of our codecs keeps zarr as it is. Later ones switch again: zarr's configuration may have
    been reset meanwhile.

    >>> from intarsia.codecs import PackBitsCodec
    >>> issubclass(PackBitsCodec, ChunkNamingCodec)
    True
    """

    names_chunks = True
    """See `intarsia.codecs.context`."""

    def __new__(cls, *_args: Any, **_fields: Any) -> Self:
        switch_pipeline()
        return super().__new__(cls)

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        """Called for every array that is made with this codec, before zarr looks for the pipeline."""
        switch_pipeline()
        evolved: Self = super().evolve_from_array_spec(array_spec)  # type: ignore[misc]  # of zarr's codecs
        return evolved


class SynchronousCodec:
    """Gives a codec with `_encode_sync` and `_decode_sync` the asynchronous pair of methods.

    >>> from intarsia.codecs import ReshapeCodec
    >>> issubclass(ReshapeCodec, SynchronousCodec)
    True
    """

    runs_in_thread = True
    """Whether the work is long enough to leave the event loop."""

    async def _encode_single(self, chunk_data: Any, chunk_spec: ArraySpec) -> Any:
        if needs_chunk_index(self, chunk_spec):  # a function may take long, and may wait for zarr
            return await in_own_thread(self._encode_sync, chunk_data, chunk_spec)  # type: ignore[attr-defined]
        return await self._run(self._encode_sync, chunk_data, chunk_spec)  # type: ignore[attr-defined]

    async def _decode_single(self, chunk_data: Any, chunk_spec: ArraySpec) -> Any:
        return await self._run(self._decode_sync, chunk_data, chunk_spec)  # type: ignore[attr-defined]

    async def _run(self, work: Callable[[Any, ArraySpec], Any], data: Any, spec: ArraySpec) -> Any:
        return await asyncio.to_thread(work, data, spec) if self.runs_in_thread else work(data, spec)


class SynchronousArrayCodec(SynchronousCodec, ArrayArrayCodec):
    """An array -> array codec whose work is not worth a thread."""

    runs_in_thread = False


class SynchronousBytesCodec(SynchronousCodec, ChunkNamingCodec, BytesBytesCodec):
    """A bytes -> bytes codec that works in a thread, unless it says otherwise.

    >>> from intarsia.codecs import ShuffleCodec
    >>> issubclass(ShuffleCodec, SynchronousBytesCodec)
    True
    """

    aligns: bool = True
    """Whether data that a header has shifted is copied to an aligned address; see `aligned`."""


def aligned(data: Buffer, spec: ArraySpec) -> Buffer:
    """`data`, copied if what is before it has left it unaligned for its numbers.

    Some array -> array codecs cannot work on unaligned numbers: `cast_value` panics.
    """
    array = data.as_numpy_array()
    if address_of(array) % spec.dtype.to_native_dtype().alignment == 0:
        return data
    return type(data).from_array_like(array.copy())


def without_copies(codecs: tuple[Codec, ...]) -> tuple[Codec, ...]:
    """A chain whose codecs need not align what they decode, if `bytes` gets it and no codec works on it.

    >>> from intarsia.codecs import PadCodec
    >>> [codec.aligns for codec in without_copies((BytesCodec(), PadCodec(nbytes=3)))[1:]]
    [False]
    """
    if type(codecs[0]) is not BytesCodec:
        return codecs
    chain = list(codecs)
    for i, codec in enumerate(codecs):
        if isinstance(codec, SynchronousBytesCodec) and codec.aligns:
            chain[i] = copy.copy(codec)
            object.__setattr__(chain[i], "aligns", False)
    return tuple(chain)


def address_of(array: np.ndarray[Any, Any]) -> int:
    """The memory address of an array."""
    address: int = array.__array_interface__["data"][0]
    return address


type Purpose = Literal["codecs", "views"]


# A pool starts a thread whenever none is idle, up to its limit; a limit that is never reached is none. Views
# have as many as asyncio has for zarr; they answer servers, which take any number of requests at once.
MAX_THREADS: dict[Purpose, int] = {"codecs": 1 << 20, "views": min(32, (os.cpu_count() or 1) + 4)}


@cache
def _pool(purpose: Purpose) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS[purpose], thread_name_prefix=f"intarsia-{purpose}")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork


async def in_thread_for[**P, T](
    purpose: Purpose, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Like `asyncio.to_thread`, in a thread that neither zarr nor work for another purpose waits for.

    >>> asyncio.run(in_thread_for("views", max, 3, 4))
    4
    """
    call = partial(copy_context().run, function, *args, **kwargs)
    try:
        future = asyncio.get_running_loop().run_in_executor(_pool(purpose), call)
    except RuntimeError as error:
        raise no_thread(error) from error
    return await future


async def in_own_thread[**P, T](function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `asyncio.to_thread`, at once, in a thread that zarr does not wait for; it may wait for zarr.

    >>> asyncio.run(in_own_thread(max, 3, 4))
    4
    """
    return await in_thread_for("codecs", function, *args, **kwargs)


type CodecLike = Codec | Mapping[str, Any] | str
"""A codec, a codec object of zarr.json as a dict, or a codec's name."""


def codec_list(codecs: Iterable[CodecLike] | CodecLike) -> tuple[CodecLike, ...]:
    """The codecs as a tuple; a single codec is a list of one.

    >>> codec_list("gzip"), codec_list(["shuffle", "zstd"])
    (('gzip',), ('shuffle', 'zstd'))
    """
    return (codecs,) if isinstance(codecs, Codec | Mapping | str) else tuple(codecs)


def all_codecs(codecs: Iterable[Codec]) -> Iterator[Codec]:
    """The codecs, and those inside them: in shards, in `conditional`, in the parts of nullable data.

    >>> from zarr.codecs import BytesCodec, ShardingCodec
    >>> len(list(all_codecs([ShardingCodec(chunk_shape=(2,), codecs=[BytesCodec()])])))
    2
    """
    for codec in codecs:
        yield codec
        for inside in ("codecs", "mask_codecs", "data_codecs"):
            if nested := getattr(codec, inside, None):
                yield from all_codecs(nested)


def needs_chunk_index(codec: Any, chunk_spec: ArraySpec) -> bool:
    """Whether `codec`, or one inside it, must be told which chunk it encodes, or may wait for zarr.

    A codec says so with a method of this name. Our pipelines then encode chunk by chunk, in threads that zarr
    does not need.

    >>> from intarsia.codecs import ShuffleCodec
    >>> needs_chunk_index(ShuffleCodec(element_size=2), None)
    False
    """
    asking: list[Any] = [each for each in all_codecs([codec]) if hasattr(each, "needs_chunk_index")]
    return any(each.needs_chunk_index(chunk_spec) for each in asking)


def parse_codecs(
    codecs: Iterable[CodecLike] | CodecLike, serializer: ArrayBytesCodec | None = None
) -> tuple[Codec, ...]:
    """The codecs as objects, in order; `serializer` is added if no array -> bytes codec is given.

    A single codec is a list of one. The serializer is `bytes` (little endian), unless the caller knows that
    the data type needs another.

    Args:
        codecs: The codecs: objects, names, or dictionaries as in zarr.json.

    >>> parse_codecs([{"name": "gzip"}])
    (BytesCodec(endian='little'), GzipCodec(level=5))
    >>> parse_codecs("gzip") == parse_codecs(["gzip"])
    True
    """
    parsed = [parse_codec(codec) for codec in codec_list(codecs)]
    if not any(isinstance(codec, ArrayBytesCodec) for codec in parsed):
        before = sum(isinstance(codec, ArrayArrayCodec) for codec in parsed)
        parsed.insert(before, serializer or BytesCodec(endian="little"))
    try:
        stages(parsed)
    except ValueError as error:
        raise CodecConfigurationError(str(error)) from error
    return tuple(parsed)


def parse_codec(codec: CodecLike) -> Codec:
    """One codec as an object.

    >>> parse_codec("crc32c")
    Crc32cCodec()
    """
    if isinstance(codec, ArrayArrayCodec | ArrayBytesCodec | BytesBytesCodec):
        return codec
    if isinstance(codec, str):
        codec = {"name": codec}
    if not isinstance(codec, Mapping) or not isinstance(codec.get("name"), str):
        raise CodecConfigurationError(
            f"{codec!r} is not a codec: give a codec object, its name, or {{'name': …, 'configuration': …}}"
        )
    if "configuration" not in codec:
        # Some of zarr's codecs insist on one even if every field has a default.
        codec = {"configuration": {}, **codec}
    try:
        # Unchanged, because it may remember the options that a codec was made with.
        return get_codec_class(codec["name"]).from_dict(codec if isinstance(codec, dict) else dict(codec))
    except UnknownCodecError as error:
        known = [name for name, found in codec_registries.items() if found or found.lazy_load_list]
        # Families of codecs come last: there are too many to name them all.
        listed = sorted(known, key=lambda name: ("." in name or name.startswith("imagecodecs_"), name))
        raise CodecConfigurationError(
            f"there is no codec {codec['name']!r}: {names_text(codec['name'].partition(':')[0], listed)}.\n"
            "  Options are given as {'name': 'zstd', 'configuration': {'level': 3}}"
        ) from error
    except (TypeError, ValueError) as error:
        if isinstance(error, IntarsiaError):
            raise
        raise CodecConfigurationError(f"codec {codec['name']!r}: {error}") from error
