"""For existing arrays: another decision, another padding, more codecs; and what was decided, read from the
headers of chunks alone.
"""

import copy
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from operator import lt
from typing import Any, cast

import numpy as np
import zarr
from zarr.abc.codec import Codec
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.codecs import Crc32cCodec
from zarr.core.buffer import Buffer, default_buffer_prototype

from intarsia._compat import ArraySpec, ArrayV3Metadata, codec_specs, sync
from intarsia.codecs import decisions, runtime_options
from intarsia.codecs.base import CodecLike, all_codecs
from intarsia.codecs.codec_path import (
    ChunkWalk,
    CodecPath,
    StoredChunk,
    deciding_arrays,
    deciding_members,
    find_codecs,
    names_of,
)
from intarsia.codecs.compressors import likely_bound
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.context import (
    Index,
    at_position,
    current_position,
    inner_position,
    switch_pipeline_for,
)
from intarsia.codecs.decisions import NAMED_DECISIONS, Decision, DecisionLike, MaskPerChunk, parse_decision
from intarsia.codecs.pad import PadCodec
from intarsia.codecs.shard_index import ShardIndex
from intarsia.codecs.stored_chunks import read_parts, stored_indices
from intarsia.errors import CodecConfigurationError, ReadOnlyError


class _Array(zarr.Array[Any]):
    """A zarr array with options. zarr's `append` grows it first; if the write fails, it shrinks again."""

    def append(self, data: Any, axis: int = 0) -> tuple[int, ...]:
        before = self.shape
        try:
            return super().append(data, axis)
        except Exception:
            if self.shape != before:
                self.resize(before)
            raise


def with_decision[T](
    array: T, decision: DecisionLike | ConditionalCodec | None, *, remember: bool = False
) -> T:
    """The same array with another decision for its `conditional` codec.

    Takes zarr arrays, logical arrays and nullable arrays. zarr.json stays as it is. The decision goes with
    the array when it is pickled, appended to or resized. None removes a decision that was given here. If you
    give a `ConditionalCodec`, its decision is used, and its nested codecs encode what is written. They must
    be those of the array, except for their levels, which nobody needs to decode a chunk.

    `remember=True` writes the name of the decision into the attributes of the array (`intarsia_decision`).
    Everybody who opens the array then uses it, unless they give their own decision. Only decisions that have
    a name can be remembered; None forgets the remembered one.

    >>> import numpy as np, zarr
    >>> from zarr.codecs import BytesCodec, ZstdCodec
    >>> codec = ConditionalCodec(codecs=[ZstdCodec()])
    >>> store = {}
    >>> z = zarr.create(store=store, shape=1000, dtype="u1", codecs=[BytesCodec(), codec])
    >>> with_decision(z, "compress_if_smaller")[:] = 7
    >>> len(store["c/0"]) < 30
    True
    """
    parsed: Decision | None
    if isinstance(decision, ConditionalCodec):
        parsed = _decision_in(deciding_arrays(array, PURPOSE), decision)
    else:
        parsed = None if decision is None else parse_decision(decision)
    name = _name_of(parsed) if remember else None
    given: Any = array
    result: Any
    if isinstance(array, zarr.Array):
        _check_decision(array, parsed)
        result = _with_options(array, decision=parsed)
    else:
        if isinstance(parsed, decisions.OtherLevels):
            given.with_config(decision=parsed.decision)  # refuses one that it cannot follow
        result = given.with_config(decision=parsed)
    if name is not None:
        result.attrs[runtime_options.REMEMBERED] = name
    elif remember and runtime_options.REMEMBERED in result.attrs:
        del result.attrs[runtime_options.REMEMBERED]
    return cast("T", result)


PURPOSE = "set a decision"


def _with_options(array: zarr.Array[Any], **changes: Any) -> zarr.Array[Any]:
    """The array with other run-time options."""
    switch_pipeline_for(array)
    config = array.async_array.config
    options = replace(runtime_options.options_in(config), **changes)
    return _Array(array.async_array.with_config(runtime_options.with_options(config, options)))


def _decision_in(arrays: list[zarr.Array[Any]], codec: ConditionalCodec) -> Decision | None:
    """The decision of `codec`, carried out by its nested codecs if their levels are not those of the arrays.

    If it has none, the decision that the arrays follow anyway is carried out by them.
    """
    levels, decision = [], codec.decision
    for array in arrays:
        outer = [each for each in find_codecs(array, PURPOSE) if not each.nested]
        matches = [each for each in outer if _matches(codec, each)]
        if not matches:
            raise CodecConfigurationError(
                f"cannot {PURPOSE}: the array has {outer[0].codec}, but {codec} was given.\n"
                "  Give the codecs of the array, at any level, or the decision alone; or add codecs: "
                "intarsia.codecs.extend_codecs(array, codecs)"
            )
        for each in matches:
            levels.append((each.codec.named, _as_opened(codec, each).named))
            decision = each.codec.effective_decision(each.spec) if decision is None else decision
    levels = [(own, others) for own, others in levels if own != others]
    return decisions.OtherLevels(decision, tuple(levels)) if decision and levels else codec.decision


def _as_opened(codec: ConditionalCodec, own: CodecPath) -> ConditionalCodec:
    """The codec as if the array were opened with it: some take a setting from the data type."""
    return codec.evolve_from_array_spec(own.spec)


def _matches(codec: ConditionalCodec, own: CodecPath) -> bool:
    """Whether the array can be written with `codec` in the place of its own, and zarr.json stays true."""
    evolved = _as_opened(codec, own)
    same_bits = evolved.header_bits == own.codec.header_bits or not codec.has_own_header_bits
    pairs = zip_longest(evolved.named, own.codec.named)
    return same_bits and all(a and b and a.decodes_like(b) for a, b in pairs)


def _check_decision(array: zarr.Array[Any], decision: Decision | None) -> None:
    """Raise unless the array has a codec that can follow this decision."""
    outer = [each for each in find_codecs(array, PURPOSE) if not each.nested]
    plan = decision.decision if isinstance(decision, decisions.OtherLevels) else decision
    if not isinstance(plan, MaskPerChunk):
        return
    if len(outer) > 1:
        raise CodecConfigurationError(
            f"the array has {len(outer)} conditional codecs, but a plan of bitmasks is for one"
        )
    covered, grid, codecs = plan.masks.shape, outer[0].grid_shape(array), len(outer[0].codec.codecs)
    if len(covered) != len(grid) or any(map(lt, covered, grid)):
        raise CodecConfigurationError(
            f"the plan has bitmasks for a chunk grid of {covered}, but that of the array is {grid}"
        )
    if (largest := int(plan.masks.max(initial=0))) >> codecs:
        raise CodecConfigurationError(
            f"the plan has the bitmask {largest:#b}, but the array has only {codecs} nested codecs"
        )


def _name_of(decision: Decision | None) -> str | None:
    """The name by which an array can remember a decision."""
    if decision is None:
        return None
    name = next((name for name, other in NAMED_DECISIONS.items() if other == decision), None)
    if name is None:
        raise CodecConfigurationError(
            f"the decision {decision} cannot be remembered: attributes cannot hold functions or bitmasks.\n"
            f"  Remember one that has a name: {', '.join(NAMED_DECISIONS)}"
        )
    return name


def with_padding[T](
    array: T, padding: runtime_options.PaddingFunction | bytes | None, *, verify_header: bool = False
) -> T:
    """The same `array` with other bytes for its `pad` or `offset` codec to write around a chunk.

    Takes zarr arrays, logical arrays and nullable arrays. `padding` is a function, like `padding_func` of
    `PadCodec`, or the bytes themselves; None removes what was given here. It goes with the array when that is
    pickled, appended to or resized, but zarr.json stays as it is. With `verify_header=True`, a read compares
    the bytes around each chunk with those that would be written; a difference is an error.

    >>> import zarr
    >>> from zarr.codecs import BytesCodec
    >>> codec = PadCodec(location="start", nbytes=4)
    >>> store = {}
    >>> z = zarr.create(store=store, shape=4, dtype="u1", codecs=[BytesCodec(), codec])
    >>> with_padding(z, lambda encoded: b"LEN%d" % len(encoded))[:] = 7
    >>> store["c/0"].to_bytes()
    b'LEN4\\x07\\x07\\x07\\x07'
    """
    runtime_options.check_padding(padding)
    given: Any = array
    if not isinstance(array, zarr.Array):
        return cast("T", given.with_config(padding=padding, verify_header=verify_header))
    codecs: tuple[Codec, ...] = getattr(array.metadata, "codecs", ())
    count = sum(isinstance(codec, PadCodec) for codec in all_codecs(codecs))
    if count != 1:
        raise CodecConfigurationError(
            f"cannot set a padding: the array has {count or 'no'} pad or offset codecs, and not one; "
            f"its codecs are {names_of(codecs)}"
        )
    padded: Any = _with_options(array, padding=padding, verify_header=verify_header)
    return cast("T", padded)


def decision_of(array: zarr.Array[Any]) -> Decision | None:
    """The decision of the `conditional` codec of `array`; None if there is none, so no nested codec applies.

    >>> import zarr
    >>> from zarr.codecs import BytesCodec, ZstdCodec
    >>> codec = ConditionalCodec(codecs=[ZstdCodec()], decision="smallest")
    >>> z = zarr.create(store={}, shape=1000, dtype="u1", codecs=[BytesCodec(), codec])
    >>> decision_of(z)
    Smallest(trials=64)
    """
    first = find_codecs(array, "find the decision")[0]
    return first.codec.effective_decision(first.spec)


def extend_codecs[T](array: T, codecs: Iterable[CodecLike]) -> T:
    """Add nested `codecs` to the `conditional` codec of `array`, and return a handle that knows them.

    They come after the existing ones. Chunks stay as they are and can still be read: their bits for the new
    codecs are 0. The header of a chunk must have bits to spare, because its length cannot change any more
    (set `header_bits` when you create the array). Only zarr.json is written, once. Handles that were opened
    before do not know the new codecs, and cannot read chunks that use them. The decision is kept.

    The array must have only one such codec, apart from those nested in it. It may be plain, nullable or
    logical; in a logical array, all members with a `conditional` codec get the new codecs, one after another.

    >>> import zarr
    >>> from intarsia.codecs import ConditionalCodec, masks, with_decision
    >>> from zarr.codecs import BytesCodec, GzipCodec, ZstdCodec
    >>> codec = ConditionalCodec(codecs=[GzipCodec()], decision="always_apply")
    >>> z = zarr.create(store={}, shape=4, chunks=2, dtype="u1", codecs=[BytesCodec(), codec])
    >>> z[:2] = 7
    >>> z = extend_codecs(z, [ZstdCodec()])
    >>> with_decision(z, 0b10)[2:] = 7
    >>> masks(z).tolist()
    [1, 2]
    """
    added = list(codecs)
    arrays = deciding_arrays(array, EXTENDING)
    documents = [_extended_metadata(each, added) for each in arrays]  # all are checked first
    extended = [_write_metadata(each, new) for each, new in zip(arrays, documents, strict=True)]
    if isinstance(array, zarr.Array):
        return cast("T", extended[0])
    fresh: Any = copy.copy(array)  # a logical array, which opens the members again
    if hasattr(fresh, "zarr_array"):  # a nullable array is a view of that one
        fresh.zarr_array = extended[0]
    return cast("T", fresh)


EXTENDING = "add nested codecs"


def _extended_metadata(array: zarr.Array[Any], added: list[CodecLike]) -> ArrayV3Metadata:
    """The metadata of an array with more nested codecs, checked as if the array were opened with it."""
    if array.read_only:
        raise ReadOnlyError(f"cannot {EXTENDING}: the array is open for reading only; open it with mode='r+'")
    stored = zarr.open_array(array.store_path, mode="r")  # the handle may be older than the last extension
    own, *others = [each for each in find_codecs(stored, EXTENDING) if not each.nested]
    if others:
        raise CodecConfigurationError(
            f"cannot {EXTENDING}: the array has {1 + len(others)} conditional codecs, and it is not clear "
            "which one is meant"
        )
    nested, bits = [*own.codec.codecs, *added], own.codec.header_bits
    if len(nested) > bits:  # a longer header would make the stored chunks unreadable
        raise CodecConfigurationError(
            f"cannot {EXTENDING}: a chunk has {bits} header bits, but {len(nested)} codecs need one each.\n"
            f"  Create an array with header_bits={(len(nested) + 7) // 8 * 8} or more, and copy the values"
        )
    extended = ConditionalCodec(codecs=nested, header_bits=bits, name=own.codec.name)
    document: Any = stored.metadata.to_dict()
    objects = _object_at(document, own.path)["configuration"]["codecs"]
    objects += [each.to_dict() for each in _as_opened(extended, own).codecs[len(objects) :]]
    return ArrayV3Metadata.from_dict(document)


def _write_metadata(array: zarr.Array[Any], metadata: ArrayV3Metadata) -> zarr.Array[Any]:
    """Write zarr.json, and return the array as it is then, with its run-time options."""
    document = metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"]
    sync((array.store_path / "zarr.json").set(document))
    before: Any = array.metadata
    options = runtime_options.options_in(array.async_array.config)
    fresh = zarr.open_array(array.store_path, mode="r+")
    return options.over(runtime_options.options_of(before.codecs)).on(fresh)


def _object_at(document: Any, path: str) -> Any:
    """The codec object of zarr.json at "codecs[0].codecs[1]"."""
    node = document
    for step, (name, position) in enumerate(re.findall(r"(\w+)\[(\d+)\]", path)):
        node = (node if step == 0 else node["configuration"])[name][int(position)]
    return node


type Bounds = tuple[tuple[int, int], ...]
type Masks = np.ma.MaskedArray[Any, np.dtype[Any]]
type Bitmask = tuple[str, Index, int]
"""The place of a codec in zarr.json, the index of a chunk, and that codec's bitmask in the chunk."""

READING = "read bitmasks"


def masks(array: Any, *, names: bool = False) -> Any:
    """The bitmask of every stored chunk of `array`, which has a `conditional` codec, over its chunk grid.

    Chunks that are not stored are masked. Only the header of each stored chunk is read; for a shard, its
    index and the headers in it. (Whole chunks have to be read if another codec than `crc32c` follows the
    conditional one, if there are several such codecs, and in shards inside shards or with codecs around
    them.) The result can be used as a decision.

    For an array with several `conditional` codecs, including nested ones, the result is a dict by the place
    of each codec in zarr.json (leaving out `configuration`): "codecs[1]", and "codecs[1].codecs[0]" for the
    first codec nested in it. A nested codec has no bitmask in chunks that it was not applied to: they are
    masked. For a logical array, the result is a dict by the bounds of its regions, each with the chunks of
    the member that the region shows; regions without such a codec are left out.

    With `names=True`, the result holds the names of the codecs, such as "shuffle+zstd"; "raw" means none.

    >>> import zarr
    >>> from intarsia.codecs import ConditionalCodec
    >>> from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec
    >>> codec = ConditionalCodec(codecs=[Crc32cCodec(), ZstdCodec()], decision=[1, 0, 3])
    >>> z = zarr.create(store={}, shape=6, chunks=2, dtype="u1", codecs=[BytesCodec(), codec])
    >>> z[2:] = 5
    >>> masks(z)
    masked_array(data=[--, 0, 3],
                 mask=[ True, False, False],
           fill_value=...,
                dtype=uint8)
    """
    if hasattr(array, "regions"):  # a logical array, about which this room knows no more
        return _of_regions(array, names)
    (zarr_array,) = deciding_arrays(array, READING)
    return _only_or_all(masks_by_codec(zarr_array, names=names))


def _named(bitmasks: Masks, codec: ConditionalCodec) -> Masks:
    """The codecs that each bitmask stands for."""
    own = [str(nested.to_dict()["name"]) for nested in codec.codecs]
    words = np.ma.masked_all(bitmasks.shape, dtype=object)
    for mask in set(bitmasks.compressed().tolist()):
        applied = [name for i, name in enumerate(own) if mask >> i & 1]
        words[(bitmasks == mask).filled(fill_value=False)] = "+".join(applied) or "raw"
    return words


def _of_regions(array: Any, names: bool) -> dict[Bounds, Any]:
    members = deciding_members(array, READING)
    by_member = {name: masks_by_codec(member, names=names) for name, member in members.items()}
    by_region: dict[Bounds, Any] = {}
    for region in array.regions:
        if region.name in members:
            member, by_codec = members[region.name], {}
            for own in find_codecs(member, READING):
                sides = zip(region.member_bounds, own.chunk_shape(member) or member.chunks, strict=True)
                chunks = tuple(slice(a // size, -(-b // size)) for (a, b), size in sides)
                by_codec[own.path] = by_member[region.name][own.path][chunks]
            by_region[region.bounds] = _only_or_all(by_codec)
    return by_region


def _only_or_all(by_codec: dict[str, Masks]) -> Any:
    return next(iter(by_codec.values())) if len(by_codec) == 1 else by_codec


def masks_by_codec(array: zarr.Array[Any], *, names: bool = False) -> dict[str, Masks]:
    """The bitmasks of each `conditional` codec of an array, by its place in zarr.json.

    >>> import zarr
    >>> from intarsia.codecs import ConditionalCodec
    >>> from zarr.codecs import BytesCodec
    >>> codecs = [BytesCodec(), ConditionalCodec(codecs=[ConditionalCodec(codecs=[])])]
    >>> list(masks_by_codec(zarr.create(store={}, shape=6, dtype="u1", codecs=codecs)))
    ['codecs[1]', 'codecs[1].codecs[0]']
    """
    paths = find_codecs(array, READING)
    bitmasks = {own.path: np.ma.masked_all(own.grid_shape(array), _dtype(own.codec)) for own in paths}
    read_one = _reader_of_headers(array, paths) or _read_whole

    def read(index: Index) -> list[Bitmask]:
        return read_one(StoredChunk.of(array, index))

    with ThreadPoolExecutor(zarr.config.get("async.concurrency")) as pool:
        for found in pool.map(read, stored_indices(array)):
            for path, index, mask in found:
                # A shard at the edge of the array may hold chunks beyond it.
                if all(i < n for i, n in zip(index, bitmasks[path].shape, strict=True)):
                    bitmasks[path][index] = mask
    return {own.path: _named(bitmasks[own.path], own.codec) for own in paths} if names else bitmasks


def _dtype(codec: ConditionalCodec) -> np.dtype[Any]:
    """The type of its bitmasks: Python integers if they have more than 64 bits."""
    return np.min_scalar_type((1 << codec.header_bits) - 1)


def _read_whole(chunk: StoredChunk) -> list[Bitmask]:
    """The bitmasks in a stored chunk or shard, which is read and decoded as far as needed."""
    found: list[Bitmask] = []

    def visit(codec: ConditionalCodec, path: str, data: Buffer, spec: ArraySpec) -> None:
        here = current_position.get()().index
        if here is None:
            return
        seen = {path: codec.read_mask(data)}
        if codec.holds_another:
            codec.decode_at_most(data, spec, likely_bound(spec), seen, path)
        found.extend((at, here, mask) for at, mask in seen.items())

    data = read_parts(chunk.path, [None])[0]
    if data is not None:
        ChunkWalk(visit).through(chunk.codecs, data, chunk.spec, chunk.locate)
    return found


def _reader_of_headers(
    array: zarr.Array[Any], paths: list[CodecPath]
) -> Callable[[StoredChunk], list[Bitmask]] | None:
    """A function that reads bitmasks from headers alone; None if that is impossible.

    It is possible for one codec, if nothing after it changes its header, in chunks or in shards of chunks.
    """
    metadata: Any = array.metadata
    own, shard = paths[0], paths[0].shards[0] if paths[0].shards else None
    codecs = metadata.codecs if shard is None else shard.codecs
    position = next((i for i, codec in enumerate(codecs) if codec is own.codec), None)
    if len(paths) > 1 or position is None or (shard is not None and metadata.codecs[-1] is not shard):
        return None
    if not all(isinstance(codec, Crc32cCodec) for codec in codecs[position + 1 :]):  # its bytes come last
        return None

    def header(start: int, stop: int | None = None) -> RangeByteRequest:
        end = start + own.codec.header_bytes
        return RangeByteRequest(start, end if stop is None else min(end, stop))

    def read(chunk: StoredChunk) -> list[Bitmask]:
        locators, requests = [chunk.locate], [header(0)]
        if shard is not None:
            outer = codec_specs(metadata.codecs, chunk.spec)[-1]
            entries = ShardIndex.of(shard, outer.shape)
            table = (
                RangeByteRequest(0, entries.nbytes) if entries.first else SuffixByteRequest(entries.nbytes)
            )
            stored = read_parts(chunk.path, [table])[0]
            if stored is None:
                return []
            inside = replace(outer, shape=shard.chunk_shape)
            with at_position(chunk.locate):
                extents = entries.extents(entries.decode(stored.as_numpy_array()))
            locators = [partial(inner_position, chunk.locate, at, inside, shard.codecs) for at in extents]
            requests = [header(*extent) for extent in extents.values()]
        found: list[Bitmask] = []
        for locate, data in zip(locators, read_parts(chunk.path, requests), strict=True):
            here = locate().index
            if data is not None and here is not None:
                with at_position(locate):
                    found.append((own.path, here, own.codec.read_mask(data)))
        return found

    return read
