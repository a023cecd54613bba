"""From a logical array to one Zarr array with a `conditional` codec and back, reusing the encoded bytes.

If all members have the logical chunk shape, they differ only in the bytes -> bytes codecs of their chunks.
The header of the `conditional` codec says just that for each chunk. So converting a chunk adds or removes a
header; nothing is decoded.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import zarr
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import ShardingCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.errors import ContainsArrayError, ContainsGroupError

from intarsia.codecs import ConditionalCodec
from intarsia.codecs.stored_decisions import masks_by_codec
from intarsia.display import bounds_text
from intarsia.engine.fetch.fetcher_choice import check_links
from intarsia.engine.fetch.read_errors import check_access
from intarsia.engine.reader import Reader
from intarsia.engine.stored_array import expect_array
from intarsia.errors import CodecConfigurationError, OverwriteError
from intarsia.interop.node_copies import ArrayDescription
from intarsia.logical.chunk_copies import ChunkMove, copy_chunks
from intarsia.logical.encoding import Encoding, create_member
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.staging import removed_on_failure
from intarsia.manifest.box import Box
from intarsia.manifest.manifest import Manifest
from intarsia.manifest.region_table import RegionTable, Row


def fuse(array: LogicalArray, store: Any = None, path: str | None = None) -> zarr.Array[Any]:
    """Make one Zarr array with the values of a logical array; stored chunks are copied without recoding.

    Without a store and a path, it goes beside the logical array, as `…-fused`. Every member must have the
    logical chunk shape and no shards, and all must agree on everything but their bytes -> bytes codecs.
    Packed regions, and regions with a view, have to be recoded first.

    Args:
        array: The logical array.
        store: The zarr store for the copy; by default that of the array.
        path: Where the copy goes in the store.

    >>> import intarsia, numpy as np, zarr
    >>> array = intarsia.create(zarr.storage.MemoryStore(), "a", shape=(0,), chunks=(4,), dtype="i4")
    >>> array.append(np.arange(8), codecs=["gzip"])
    >>> array.append(np.arange(8, 12), codecs=["zstd"])
    >>> intarsia.codecs.masks(intarsia.fuse(array)).tolist()
    [1, 1, 2]
    """
    expect_array(array, "fuse")
    names = {region.name for region in array.regions}  # replicas hold the same values once more
    members = {name: array.members[name] for name in array.manifest.members if name in names}
    before = _shared_codecs(array, members)
    nested: list[BytesBytesCodec] = []
    masks = {}
    for name, member in members.items():
        chain = [codec for codec in _codecs(member) if isinstance(codec, BytesBytesCodec)]
        masks[name], nested = _with_chain(nested, chain)
    manifest = array.manifest
    encoding = Encoding([*before, ConditionalCodec(codecs=nested)])
    _check_readable(list(members.values()))

    place = f"{array.path}-fused" if path is None else path
    try:
        fused = create_member(
            array.store if store is None else store, place, manifest, manifest.shape, encoding
        )
    except (ContainsArrayError, ContainsGroupError) as error:
        raise OverwriteError(
            f"there is already something at {place or '/'!r}.\n  Choose another path"
        ) from error
    with removed_on_failure(fused.store_path):
        fused.update_attributes(dict(array.attrs))
        for region in array.regions:
            missing = _copy_with_header(members[region.name], fused, region.row, masks[region.name])
            _write_fill_value(members[region.name].fill_value, fused, manifest, missing)
    return fused


def _copy_with_header(
    member: zarr.Array[Any], fused: zarr.Array[Any], row: Row, mask: int
) -> list[tuple[int, ...]]:
    """Copy the chunks of a region, each behind the header that names its codecs; returns those not stored."""
    codec = next(c for c in _codecs(fused) if isinstance(c, ConditionalCodec))
    header = default_buffer_prototype().buffer.from_bytes(mask.to_bytes(codec.header_bytes, "little"))
    sources = row.box.shifted(row.shift).indices()
    moves = [ChunkMove(*pair) for pair in zip(sources, row.box.indices(), strict=True)]
    return copy_chunks(member, fused, moves, lambda chunk: header + chunk)


def _write_fill_value(
    value: Any, fused: zarr.Array[Any], manifest: Manifest, cells: list[tuple[int, ...]]
) -> None:
    """Write the fill value of a member into chunks that it does not store, unless it is the array's own."""
    is_float = np.dtype(fused.dtype).kind in "fc"
    if not np.array_equal(value, fused.fill_value, equal_nan=is_float):
        for cell in cells:
            elements = manifest.elements(Box(cell, tuple(i + 1 for i in cell)))
            fused[elements.slices or ...] = value


def split(array: zarr.Array[Any], store: Any = None, path: str | None = None) -> LogicalArray:
    """Make a logical array from a Zarr `array` that has a `conditional` codec: one member per mask.

    It is written to `store` at `path`. By default, it goes beside the array, as `…-split`. The
    `conditional` codec must be the last one, and the array must not be sharded: only then is a chunk without
    its header a chunk of a plain array.

    >>> import intarsia, zarr
    >>> codec = intarsia.codecs.ConditionalCodec(codecs=[zarr.codecs.GzipCodec()], decision=[1, 0, 1])
    >>> z = zarr.create(store=zarr.storage.MemoryStore(), path="z", shape=6, chunks=2, dtype="u1",
    ...                 codecs=[zarr.codecs.BytesCodec(), codec])
    >>> z[:] = 5
    >>> [region.codec_names for region in intarsia.split(z).regions]
    ['gzip', 'raw', 'gzip']
    """
    expect_array(array, "split", "zarr.open_array(store, path=path)")
    codecs = _codecs(array)
    codec = codecs[-1] if codecs else None
    if not isinstance(codec, ConditionalCodec):
        last = repr(codec.to_dict()["name"]) if codec is not None else "one of Zarr v2"
        raise CodecConfigurationError(
            f"cannot split: the last codec of the array is {last}, not 'conditional'"
        )
    _check_readable([array])
    result = ArrayDescription.of(Reader.of(array)).create_logical(
        array.store if store is None else store, f"{array.path}-split" if path is None else path
    )
    with removed_on_failure(result.group.store_path):
        logical, bitmasks = result._logical, masks_by_codec(array)[f"codecs[{len(codecs) - 1}]"]
        names: list[str] = []
        table = RegionTable.from_rows([], array.ndim)
        for mask in sorted({int(m) for m in bitmasks.compressed()}):
            chain = [*codecs[:-1], *(c for i, c in enumerate(codec.codecs) if mask >> i & 1)]
            name, member = logical.create_member(array.shape, Encoding(chain))
            cells = np.argwhere((bitmasks == mask).filled(False))
            moves = [ChunkMove(cell, cell) for cell in map(tuple, cells.tolist())]
            copy_chunks(array, member, moves, lambda chunk: chunk[codec.header_bytes :])
            number = np.full(len(cells), len(names), dtype=np.int64)
            table = table.concat(RegionTable.of(number, cells, cells + 1, cells))
            names.append(name)
        for axis in reversed(range(array.ndim)):
            table = table.merge_neighbours(axis)
        logical.commit(logical.manifest.changed(table, members=tuple(names)))
    return result


def _check_readable(arrays: Sequence[zarr.Array[Any]]) -> None:
    """Refuse files elsewhere that may not be read, before anything is written."""
    for array in arrays:
        check_access(array.store, [(array.path, array.ndim)])
        check_links(array.store, array.path)


def _codecs(array: zarr.Array[Any]) -> tuple[Any, ...]:
    return tuple(getattr(array.metadata, "codecs", ()))


def _with_chain(
    nested: list[BytesBytesCodec], chain: list[BytesBytesCodec]
) -> tuple[int, list[BytesBytesCodec]]:
    """The mask that applies a chain, and the nested codecs with those of it that were missing at the end.

    >>> _with_chain(["shuffle", "gzip"], ["shuffle", "zstd"])
    (5, ['shuffle', 'gzip', 'zstd'])
    """
    mask = position = 0
    for codec in chain:
        if codec not in nested[position:]:
            nested = [*nested, codec]
        position = nested.index(codec, position) + 1
        mask |= 1 << (position - 1)
    return mask, nested


def _shared_codecs(array: LogicalArray, members: dict[str, zarr.Array[Any]]) -> list[Any]:
    """The codecs before the bytes -> bytes codecs; every region must store the chunks of the array."""
    shared: list[Any] | None = None
    for region in array.regions:
        member = members[region.name]
        before = [codec for codec in _codecs(member) if not isinstance(codec, BytesBytesCodec)]
        shared = before if shared is None else shared
        problems = {
            f"is packed: {region.packing}": region.packing is not None,
            f"has the view {region.view}": region.view is not None,
            "is sharded": isinstance(_codecs(member)[0], ShardingCodec),
            f"has chunks {member.chunks}, but the logical array has {array.chunks}": (
                tuple(member.chunks) != array.chunks
            ),
            f"has {before} before its compressors, but another has {shared}": before != shared,
        }
        for problem in (text for text, holds in problems.items() if holds):
            raise CodecConfigurationError(
                f"cannot fuse: the region {bounds_text(region.bounds)} {problem}.\n"
                f"  Recode it first: arr.recode({region.bounds}, codecs=[…], chunks={array.chunks}, "
                "packing=None)\n"
                "  Or copy the values to one plain array: intarsia.export(array, 'plain.zarr')",
                command="Recode it first: intarsia recode; or copy the values: intarsia export",
            )
    return shared or []
