"""For existing arrays: another decision, another padding, more codecs; and what was decided, read from the
headers of chunks alone.
"""

import copy
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol, Self, cast

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype

from intarsia._compat import ArrayV3Metadata, sync
from intarsia.codecs import runtime_options
from intarsia.codecs.base import CodecLike
from intarsia.codecs.codec_path import (
    EncodedPiece,
    Route,
    deciding_arrays,
    deciding_members,
    find_routes,
    stored_piece,
)
from intarsia.codecs.compressors import likely_bound
from intarsia.codecs.conditional import ConditionalCodec
from intarsia.codecs.context import Grid, Index, at_place, switch_pipeline_for
from intarsia.codecs.decisions import Decision, DecisionLike, MaskPerChunk, named_decisions, parse_decision
from intarsia.codecs.pad import OffsetCodec, PadCodec
from intarsia.codecs.stored_chunks import Extent, StoredObject, firsts, stored_indices
from intarsia.errors import CodecConfigurationError, ReadOnlyError


class Configurable(Protocol):
    """A logical or nullable array, which takes run-time options."""

    @property
    def attrs(self) -> Any: ...

    def with_config(self, **options: Any) -> Self: ...


type AnyArray = zarr.Array[Any] | Configurable


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


def with_decision[T: AnyArray](
    array: T, decision: DecisionLike | ConditionalCodec | None, *, remember: bool = False
) -> T:
    """The same array with another decision for its `conditional` codec.

    Takes zarr arrays, logical arrays and nullable arrays. zarr.json stays as it is. The decision goes with
    the array when it is pickled, appended to or resized. None removes a decision that was given here. If you
    give a `ConditionalCodec`, its decision is used; it must have the nested codecs of the array.

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
    if isinstance(decision, ConditionalCodec):
        for each in deciding_arrays(array, "set a decision"):
            _check_codec(each, decision)
        decision = decision.decision
    parsed = None if decision is None else parse_decision(decision)
    name = _name_of(parsed) if remember else None
    result: Any
    if isinstance(array, zarr.Array):
        _check_decision(array, parsed)
        switch_pipeline_for(array)
        result = _Array(
            array.async_array.with_config(runtime_options.runtime_config(array.async_array.config, parsed))
        )
    else:
        result = array.with_config(decision=parsed)
    if name is not None:
        result.attrs[runtime_options.REMEMBERED] = name
    elif remember and runtime_options.REMEMBERED in result.attrs:
        del result.attrs[runtime_options.REMEMBERED]
    return cast("T", result)


def _check_codec(array: zarr.Array[Any], codec: ConditionalCodec) -> None:
    """Raise unless a codec of the array has the configuration of `codec`: zarr.json stays as it is."""
    routes = find_routes(array, "set a decision")
    for route in routes:
        # As when an array is opened: some codecs take a setting from the data type.
        evolved = codec.evolve_from_array_spec(route.spec(array, array.shape))
        same_bits = evolved.header_bits == route.codec.header_bits or not codec.has_own_header_bits
        if same_bits and evolved.codecs == route.codec.codecs:
            return
    own = routes[0].codec
    raise CodecConfigurationError(
        f"cannot set a decision: the codec that was given has {_configuration(codec)}, but that of the array "
        f"has {_configuration(own)}.\n"
        "  Give a codec with the configuration of the array, or the decision alone. To add nested codecs: "
        "intarsia.codecs.extend_codecs(array, codecs); to store a logical array in others: intarsia.recode"
    )


def _configuration(codec: ConditionalCodec) -> str:
    return f"header_bits {codec.header_bits} and codecs {json.dumps(_as_json(codec))}"


def _check_decision(array: zarr.Array[Any], decision: Decision | None) -> None:
    """Raise unless the array has a codec that can follow this decision."""
    codecs = runtime_options.all_codecs(getattr(array.metadata, "codecs", ()))
    if isinstance(decision, MaskPerChunk):
        check_plan(decision, array, find_routes(array, "set a decision"))
    elif not any(isinstance(codec, ConditionalCodec) for codec in codecs):
        find_routes(array, "set a decision")  # its error says what the array has instead


def _name_of(decision: Decision | None) -> str | None:
    """The name by which an array can remember a decision."""
    if decision is None:
        return None
    named = named_decisions()
    name = next((name for name, other in named.items() if other == decision), None)
    if name is None:
        raise CodecConfigurationError(
            f"the decision {decision} cannot be remembered: attributes are JSON, which cannot hold "
            "functions, bitmasks or settings, so nobody who opens the array would know them.\n"
            f"  Remember one that has a name: {', '.join(sorted(named))}"
        )
    return name


def with_padding[T: AnyArray](
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
    if not isinstance(array, zarr.Array):
        return array.with_config(padding=padding, verify_header=verify_header)
    metadata: Any = array.metadata
    codecs = getattr(metadata, "codecs", ())
    count = sum(isinstance(codec, PadCodec | OffsetCodec) for codec in runtime_options.all_codecs(codecs))
    if count != 1:
        names = [codec.to_dict().get("name") for codec in codecs]
        raise CodecConfigurationError(
            f"cannot set a padding: the array has {count or 'no'} pad or offset codecs"
            + (", so it is not clear which one is meant" if count else f"; its codecs are {names}")
        )
    switch_pipeline_for(array)
    config = array.async_array.config
    options = replace(runtime_options.options_in(config), padding=padding, verify_header=verify_header)
    padded: Any = _Array(array.async_array.with_config(runtime_options.with_options(config, options)))
    return cast("T", padded)


def decision_of(array: zarr.Array[Any]) -> Decision | None:
    """The decision of the `conditional` codec of `array`; None if there is none, so no nested codec applies.

    >>> import zarr
    >>> from zarr.codecs import BytesCodec, ZstdCodec
    >>> codec = ConditionalCodec(codecs=[ZstdCodec()], decision="smallest")
    >>> z = zarr.create(store={}, shape=1000, dtype="u1", codecs=[BytesCodec(), codec])
    >>> decision_of(z).bounds_size
    True
    """
    route = find_routes(array, "find the decision")[0]
    spec = route.spec(array, array.shape)
    return route.codec.effective_decision(spec)


def check_plan(plan: MaskPerChunk, array: zarr.Array[Any], routes: list[Route]) -> None:
    """Raise unless `plan` has a bitmask for every chunk of `array`, and each fits its codec."""
    if len(routes) > 1:
        raise CodecConfigurationError(
            f"the array has {len(routes)} conditional codecs, but a plan of bitmasks is for one"
        )
    shape, codecs = routes[0].grid_shape(array), len(routes[0].codec.codecs)
    if len(plan.shape) != len(shape) or any(n < m for n, m in zip(plan.shape, shape, strict=True)):
        raise CodecConfigurationError(
            f"the plan has bitmasks for a chunk grid of {plan.shape}, but that of the array is {shape}"
        )
    largest = int(plan.masks.max()) if plan.masks.size else 0
    if largest >> codecs:
        raise CodecConfigurationError(
            f"the plan has the bitmask {largest:#b}, but the array has only {codecs} nested codecs"
        )


PURPOSE = "add nested codecs"


def extend_codecs[T](array: T, codecs: Iterable[CodecLike], *, at: str | None = None) -> T:
    """Add nested `codecs` to the `conditional` codec of `array`, and return a handle that knows them.

    They come after the existing ones. Chunks stay as they are and can still be read: their bits for the new
    codecs are 0. The header of a chunk must have bits to spare, because its length cannot change any more
    (set `header_bits` when you create the array). Only zarr.json is written, once. Handles that were opened
    before do not know the new codecs, and cannot read chunks that use them. The decision is kept; if several
    codecs had their own, give it again.

    If an array has several `conditional` codecs, `at` says which one is meant: "codecs[1]", as in the result
    of `masks`. The array may be plain, nullable or logical; in a logical array, all members with a
    `conditional` codec get the new codecs, one after another.

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
    kind: Any = array
    if hasattr(kind, "regions"):  # a logical array
        members = deciding_members(kind, PURPOSE).values()
        for extension in [_Extension(member, added, at) for member in members]:  # all are checked first
            extension.carry_out()
        return copy.copy(array)  # opens the members again
    if hasattr(kind, "zarr_array"):  # a nullable array is a view of that one
        fresh: Any = copy.copy(array)
        fresh.zarr_array = _Extension(kind.zarr_array, added, at).carry_out()
        return cast("T", fresh)
    extended: Any = _Extension(kind, added, at).carry_out()
    return cast("T", extended)


class _Extension:
    """A change to one array's zarr.json, checked before anything is written."""

    def __init__(self, array: zarr.Array[Any], added: list[CodecLike], at: str | None) -> None:
        if array.read_only:
            raise ReadOnlyError(
                f"cannot {PURPOSE}: the array is open for reading only; open it with mode='r+'"
            )
        self.array = array
        route, path, self.codec = _choose_codec(array, at)
        _check_room(self.codec, len(added))
        extended = ConditionalCodec(
            codecs=[*self.codec.codecs, *added], header_bits=self.codec.header_bits, name=self.codec.name
        )
        if not any(
            step.part for step in route.steps
        ):  # as when an array is created: some codecs check the data type
            extended = extended.evolve_from_array_spec(route.spec(array, array.shape))
        self.key = array.store_path / "zarr.json"
        stored = sync(self.key.get(default_buffer_prototype()))
        if stored is None:
            raise CodecConfigurationError(
                f"cannot {PURPOSE}: the array at {array.store_path} no longer exists"
            )
        self.document: dict[str, Any] = json.loads(stored.to_bytes())
        nested = _find(self.document, path)["configuration"]["codecs"]
        if nested != _as_json(self.codec):
            raise CodecConfigurationError(
                f"cannot {PURPOSE}: the codecs in zarr.json are no longer those of this handle; open the "
                "array again"
            )
        nested += _as_json(extended)[len(nested) :]
        ArrayV3Metadata.from_dict(copy.deepcopy(self.document))  # zarr checks it as if it were opened

    def carry_out(self) -> zarr.Array[Any]:
        """Write zarr.json, and return the array as it is then."""
        content = json.dumps(self.document, indent=2).encode()
        sync(self.key.set(default_buffer_prototype().buffer.from_bytes(content)))
        fresh = zarr.open_array(self.array.store_path, mode="r+", zarr_format=3)
        metadata: Any = self.array.metadata
        carried = runtime_options.options_of(metadata.codecs)
        if len(find_routes(self.array, PURPOSE)) > 1:  # each may have its own decision, but an array has one
            carried = replace(carried, decision=None)
        return runtime_options.options_in(self.array.async_array.config).over(carried).on(fresh)


def _choose_codec(array: zarr.Array[Any], at: str | None) -> tuple[Route, str, ConditionalCodec]:
    """The route to the codec that is meant, its place in zarr.json, and the codec."""
    candidates = {
        path: (route, path, codec)
        for route in find_routes(array, PURPOSE)
        for path, codec in route.conditional_codecs().items()
    }
    if at is None and len(candidates) == 1:
        return next(iter(candidates.values()))
    if at not in candidates:
        reason = "say which one is meant" if at is None else f"there is none at {at!r}"
        raise CodecConfigurationError(
            f"cannot {PURPOSE}: the array has {len(candidates)} conditional codecs, and {reason}.\n"
            f"  Give at= one of {', '.join(map(repr, candidates))}"
        )
    return candidates[at]


def _check_room(codec: ConditionalCodec, added: int) -> None:
    count = len(codec.codecs) + added
    if count > codec.header_bits:
        raise CodecConfigurationError(
            f"cannot {PURPOSE}: the header of a chunk has {codec.header_bits} bits, but {count} nested "
            "codecs need one bit each. A longer header would make the stored chunks unreadable.\n"
            f"  Create an array with header_bits={(count + 7) // 8 * 8} or more, and copy the values"
        )


def _as_json(codec: ConditionalCodec) -> Any:
    """The nested codecs as they are in zarr.json."""
    return json.loads(json.dumps([nested.to_dict() for nested in codec.codecs]))


def _find(document: Any, path: str) -> Any:
    """The codec object of zarr.json at "codecs[0].codecs[1]"."""
    node = document
    for step, (name, position) in enumerate(re.findall(r"(\w+)\[(\d+)\]", path)):
        node = (node if step == 0 else node["configuration"])[name][int(position)]
    return node


type Bounds = tuple[tuple[int, int], ...]
type Masks = np.ma.MaskedArray[Any, np.dtype[Any]]
type Bitmask = tuple[str, Index, int]
"""The place of a codec in zarr.json, the index of a chunk, and that codec's bitmask in the chunk."""

LARGEST_INTEGER_BITS = 64
"""Longer bitmasks are Python integers in an object array."""


def masks(array: Any, *, names: bool = False) -> Any:
    """The bitmask of every stored chunk of `array`, which has a `conditional` codec, over its chunk grid.

    Chunks that are not stored are masked. Only the header of each stored chunk is read; for a shard, its
    index and the headers in it. (Whole chunks have to be read if a codec after the conditional one compresses
    the header, if the codec is inside the `optional` codec of nulls, or if another one is nested in it.)
    The result can be used as a decision.

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
    (zarr_array,) = deciding_arrays(array, "read bitmasks")
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
    members = deciding_members(array, "read bitmasks")
    bitmasks = {name: masks_by_codec(member, names=names) for name, member in members.items()}
    chunk_shapes = {
        (name, path): route.chunk_shape(member) or member.chunks
        for name, member in members.items()
        for route in find_routes(member, "read bitmasks")
        for path in route.conditional_codecs()
    }
    by_region: dict[Bounds, Any] = {}
    for region in array.regions:
        if region.name in members:
            by_codec = {}
            for path, whole in bitmasks[region.name].items():
                sides = zip(region.member_bounds, chunk_shapes[region.name, path], strict=True)
                by_codec[path] = whole[tuple(slice(a // size, -(-b // size)) for (a, b), size in sides)]
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
    by_codec: dict[str, Masks] = {}
    routes = find_routes(array, "read bitmasks")
    stored = stored_indices(array)
    for route in routes:
        for path, bitmasks in _on_route(array, route, stored).items():
            codec = route.conditional_codecs()[path]
            by_codec[path] = _named(bitmasks, codec) if names else bitmasks
    return by_codec


def _on_route(array: zarr.Array[Any], route: Route, stored: Sequence[Index]) -> dict[str, Masks]:
    shape = route.grid_shape(array)
    bitmasks = {
        path: np.ma.masked_all(shape, dtype=_dtype(codec))
        for path, codec in route.conditional_codecs().items()
    }
    metadata: Any = array.metadata
    grid = Grid.of(metadata)

    def read(index: Index) -> list[Bitmask]:
        extent = Extent(StoredObject(array.store_path / metadata.encode_chunk_key(index)))
        return list(_read(route, stored_piece(array, grid, index, extent)))

    with ThreadPoolExecutor(zarr.config.get("async.concurrency")) as pool:
        for found in pool.map(read, stored):
            for path, index, mask in found:
                # A shard at the edge of the array may hold chunks beyond it.
                if all(i < n for i, n in zip(index, shape, strict=True)):
                    bitmasks[path][index] = mask
    return bitmasks


def _dtype(codec: ConditionalCodec) -> np.dtype[Any]:
    sizes = (size for size in (8, 16, 32, 64) if size >= codec.header_bits)
    return np.dtype(f"u{next(sizes) // 8}") if codec.header_bits <= LARGEST_INTEGER_BITS else np.dtype(object)


def _read(route: Route, piece: EncodedPiece, level: int = 0) -> Iterator[Bitmask]:
    """The bitmasks in every chunk of the stored object, or in the one chunk that it is."""
    pieces = [piece]
    if level < len(route.steps) - 1:
        step = route.steps[level]
        pieces = [inner for name, inner in step.open(piece).items() if step.leads_into(name)]
        level += 1
    if level < len(route.steps) - 1:
        for inner in pieces:
            yield from _read(route, inner, level)
    elif route.codec.holds_another:
        for inner in pieces:
            yield from _read_nested(route, inner)
    else:
        yield from _read_headers(route, pieces)


def _read_headers(route: Route, pieces: list[EncodedPiece]) -> Iterator[Bitmask]:
    by_source: dict[int, list[EncodedPiece]] = {}
    for piece in pieces:
        opened = route.end.uncover(piece)
        if opened is not None:
            by_source.setdefault(id(opened.extent.source), []).append(opened)
    for group in by_source.values():
        headers = firsts([piece.extent for piece in group], route.codec.header_bytes)
        for header, piece in zip(headers, group, strict=True):
            index = piece.place.index()
            if header is not None and index is not None:
                with at_place(piece.place):
                    yield route.path, index, route.codec.read_mask(header)


def _read_nested(route: Route, piece: EncodedPiece) -> Iterator[Bitmask]:
    """Like `_read_headers`, for a codec with others nested in it, whose headers are inside its data."""
    opened, index = route.end.uncover(piece), piece.place.index()
    data = None if opened is None else opened.extent.all()
    if opened is None or data is None or index is None:
        return
    found: list[Bitmask] = []
    with at_place(piece.place):
        route.codec.decode_at_most(
            data,
            opened.spec,
            likely_bound(opened.spec),
            lambda path, mask: found.append((path, index, mask)),
            route.path,
        )
    yield from found
