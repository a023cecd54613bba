"""`intarsia.archives.to_kerchunk`: an ingested dataset as kerchunk references, for programs without intarsia.

A set of references has one encoding per variable. So a dataset becomes as many sets as it has runs in which
no variable changes its encoding; each is a dataset of Zarr format 2 whose chunks are ranges of the source
files.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.metadata.v2 import ArrayV2Metadata
from zarr.core.sync import sync
from zarr.dtype import parse_dtype

from intarsia._icechunk import VIRTUAL, ChunkTable, chunk_table
from intarsia.archives.dataset import Dataset
from intarsia.archives.locations import local_path
from intarsia.display import bounds_text, codecs_text
from intarsia.errors import IngestError, UnreachableMembersError
from intarsia.extras import import_extra
from intarsia.logical.hierarchy import LEDGER
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.region import Region
from intarsia.manifest.box import Box
from intarsia.manifest.packing import Packing
from intarsia.versions.authorization import Allowed
from intarsia.versions.version import Version, resolve_store

EXPORT = "Copy the values to plain Zarr: intarsia.export"
"""What to do if a copy cannot be avoided."""


@dataclass(frozen=True)
class KerchunkFile:
    """One set of references that was written, and the part of the dataset that it shows.

    >>> KerchunkFile("2002.json", {"time": (0, 30)}, 30)
    KerchunkFile(path='2002.json', bounds={'time': (0, 30)}, chunks=30)
    """

    path: str
    bounds: Mapping[str, tuple[int, int]]
    """The indices of the part along every dimension that is cut."""

    chunks: int
    """The number of chunks that it refers to."""


def to_kerchunk(
    store: Any,
    path: str = "",
    file: str | os.PathLike[str] = "references.json",
    *,
    parquet: bool = False,
    authorize: Allowed = None,
    storage_options: Mapping[str, Any] | None = None,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
) -> tuple[KerchunkFile, ...]:
    """Write a dataset as kerchunk references, for xarray, fsspec and other programs without intarsia.

    `path` is the group of the dataset. Each run of equal encoding becomes one set of references, or several
    if it has more than 262,144 chunks of a variable. If there are several sets, their names contain the first
    and last index along each dimension that is cut, before the suffix of `file`. Packed values keep their
    packing as attributes, which xarray decodes; coordinates and copied data are written into the references.
    Reversed or transposed regions are refused, and so are codecs that Zarr format 2 does not have.
    `parquet=True` writes directories of Parquet files, which needs pandas and pyarrow.

    `store` is a repository or its path, at the tip of `branch`, a `tag` or a `snapshot_id`. `authorize` and
    `storage_options` say which sources may be read, and how, as in `intarsia.open_repository`.

    >>> import tempfile, h5py, numpy as np, intarsia
    >>> folder = tempfile.mkdtemp()
    >>> for day in range(3):
    ...     with h5py.File(f"{folder}/{day}.h5", "w") as file:
    ...         file["time"] = np.array([day])
    ...         gzip = None if day < 2 else "gzip"
    ...         _ = file.create_dataset("sst", data=np.ones((1, 4), "f4"), chunks=(1, 2), compression=gzip)
    ...         file["time"].make_scale("time")
    ...         file["sst"].dims[0].attach_scale(file["time"])
    >>> report = intarsia.ingest(f"{folder}/*.h5", f"{folder}/repository", concat_dim="time")
    >>> for written in intarsia.archives.to_kerchunk(report.repository, "", f"{folder}/sst.json"):
    ...     print(written.path.removeprefix(folder), written.bounds, written.chunks)
    /sst-time0-2.json {'time': (0, 2)} 4
    /sst-time2-3.json {'time': (2, 3)} 2
    """
    store = resolve_store(store, Version(branch, tag, snapshot_id), authorize, storage_options).store
    dataset = Dataset.read(store, path.strip("/"))
    if not dataset.logical_groups:
        raise IngestError(f"there is no dataset of logical arrays at {path or '/'!r}")
    arrays = [_ReferencedArray(LogicalArray(group)) for group in dataset.logical_groups.values()]
    sizes = {dim: size for each in arrays for dim, size in zip(each.dims, each.array.shape, strict=True)}
    sets = []
    for part in _parts(arrays, sizes):
        cut = {dim: ends for dim, ends in part.items() if ends != (0, sizes[dim])}
        place = "".join(f"-{dim}{a}-{b}" for dim, (a, b) in cut.items())
        target = Path(file).with_name(f"{Path(file).stem}{place}{Path(file).suffix}")
        refs: dict[str, Any] = {".zgroup": '{"zarr_format": 2}', ".zattrs": json.dumps(dataset.group_attrs)}
        for array in arrays:
            refs |= array.references(part)
        chunks = sum(isinstance(each, list) for each in refs.values())
        for name in dataset.plain:
            if name != LEDGER:
                refs |= _loaded(dataset, name, part)
        sets.append((target, refs, KerchunkFile(str(target), cut, chunks)))
    for target, refs, _ in sets:  # only now: anything that cannot be expressed was refused before
        _write(target, refs, parquet=parquet)
    return tuple(each for *_, each in sets)


def _write(target: Path, refs: Mapping[str, Any], *, parquet: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if parquet:
        reference = import_extra("fsspec.implementations.reference", "virtual")
        local = import_extra("fsspec.implementations.local", "virtual").LocalFileSystem()
        mapper = reference.LazyReferenceMapper.create(root=str(target), fs=local, engine="pyarrow")
        for key, value in refs.items():
            mapper[key] = value.encode() if isinstance(value, str) else value
        mapper.flush()
        return
    fresh = target.with_name(target.name + ".partial")
    fresh.write_text(json.dumps({"version": 1, "refs": refs}, separators=(",", ":")))
    fresh.replace(target)


def _parts(arrays: list[_ReferencedArray], sizes: Mapping[str, int]) -> Iterator[dict[str, tuple[int, int]]]:
    """The parts of a dataset in which no variable changes its encoding, as bounds along every dimension."""
    cuts = {dim: {0, size} for dim, size in sizes.items()}
    for array in arrays:
        for axis, dim in enumerate(array.dims):
            cuts[dim] |= {end for region in array.regions for end in region.bounds[axis]}
    spans = [itertools.pairwise(sorted(ends)) for ends in cuts.values()]
    return (dict(zip(cuts, bounds, strict=True)) for bounds in itertools.product(*spans))


class _ReferencedArray:
    """One logical array to be written."""

    def __init__(self, array: LogicalArray) -> None:
        self.array = array
        self.name = array.path.rpartition("/")[2]
        self.regions: list[Region] = list(array.regions)
        self.dims = [str(dim) for dim in array.dimension_names or map(str, range(array.ndim))]
        self._tables: dict[str, ChunkTable] = {}

    def references(self, part: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
        """The metadata and chunks of a part of the array."""
        box = Box.of(part[dim] for dim in self.dims)
        region = next((r for r in self.regions if Box.of(r.bounds).intersect(box) is not None), None)
        attrs = {**self.array.attrs, "_ARRAY_DIMENSIONS": self.dims}
        if region is None:
            kind = np.dtype(self.array.dtype)
            return _metadata(self.name, attrs, kind, box.shape, box.shape, self.array.fill_value)
        if region.view is not None:
            raise UnreachableMembersError(
                f"{self.name}{bounds_text(region.bounds)} is seen reversed or transposed, which references "
                f"cannot express.\n  {EXPORT}"
            )
        member = region.member
        filters, compressor, order, kind = _codecs(self.name, member)
        fill: Any = member.fill_value
        if region.packing is not None:
            attrs |= _packing_attrs(region.packing)
            fill = region.packing.missing[0] if region.packing.missing else fill
        inside = self.array.manifest.to_member(region.row, box)
        chunks = tuple(member.chunks)
        if any(start % size for start, size in zip(inside.start, chunks, strict=True)):
            raise UnreachableMembersError(
                f"{self.name}{bounds_text(box.bounds)} does not begin at the border of a chunk of {chunks}, "
                f"which references cannot express.\n  {EXPORT}"
            )
        encoding = {"filters": filters or None, "compressor": compressor, "order": order}
        refs = _metadata(self.name, attrs, kind, box.shape, chunks, fill, encoding)
        return refs | self._chunks(region, inside, chunks)

    def _chunks(self, region: Region, inside: Box, chunks: tuple[int, ...]) -> dict[str, Any]:
        path = f"{self.array.path}/{region.name}".strip("/")
        if region.name not in self._tables:
            self._tables[region.name] = chunk_table(self.array.store, path, self.array.ndim)
        table = self._tables[region.name]
        first, last = (np.array(ends, dtype=np.int64) for ends in inside.in_units(chunks))
        rows = np.flatnonzero(((table.index >= first) & (table.index < last)).all(axis=1))
        refs: dict[str, Any] = {}
        for i in rows.tolist():
            index = table.index[i] - first
            key = f"{self.name}/{'.'.join(map(str, index.tolist())) or '0'}"
            if table.kind[i] == VIRTUAL:
                refs[key] = [_location(table.location[i]), int(table.offset[i]), int(table.nbytes[i])]
            else:
                stored = "/".join([path, "c", *map(str, table.index[i].tolist())])
                content = sync(self.array.store.get(stored, default_buffer_prototype()))
                refs[key] = _base64(content.to_bytes())
        return refs


def _location(url: str) -> str:
    """A URL in fsspec's form, without percent-encoding."""
    path = local_path(url)
    return unquote(url) if path is None else str(path)


def _codecs(name: str, member: zarr.Array[Any]) -> tuple[list[Any], Any, str, np.dtype[Any]]:
    """The filters, compressor, order and data type with which Zarr format 2 decodes a member's chunks."""
    kind, order, chain = np.dtype(member.dtype), "C", []
    for codec in member.metadata.codecs:  # type: ignore[union-attr]  # members are v3
        known = _in_format_2(codec)
        if isinstance(codec, TransposeCodec) and codec.order == tuple(reversed(range(member.ndim))):
            order = "F"
        elif isinstance(codec, BytesCodec):
            if codec.endian is not None and kind.itemsize > 1:
                kind = kind.newbyteorder(
                    "<" if str(getattr(codec.endian, "value", codec.endian)) == "little" else ">"
                )
        elif known is None:
            words = codecs_text([codec.to_dict()])
            raise UnreachableMembersError(
                f"{name} is encoded by {words}, which Zarr format 2 does not have.\n  {EXPORT}"
            )
        else:
            chain.append(known)
    # Format 2 encodes with all filters, then the compressor, so the last codec is the compressor.
    return (chain[:-1], chain[-1], order, kind) if chain else ([], None, order, kind)


def _in_format_2(codec: Any) -> dict[str, Any] | None:
    """A bytes -> bytes codec as numcodecs writes it into metadata of format 2; None if that is impossible."""
    document = codec.to_dict()
    name, configuration = str(document.get("name", "")), dict(document.get("configuration") or {})
    if name.startswith("numcodecs."):
        return configuration | {"id": name.removeprefix("numcodecs.")}
    if isinstance(codec, GzipCodec | ZstdCodec):
        return {"id": name, "level": configuration["level"]}
    if isinstance(codec, BloscCodec):
        shuffles = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}
        return {
            "id": "blosc", "cname": configuration["cname"], "clevel": configuration["clevel"],
            "shuffle": shuffles[configuration["shuffle"]], "blocksize": configuration.get("blocksize", 0),
        }  # fmt: skip
    if isinstance(codec, Crc32cCodec):
        return {"id": "crc32c", "location": "end"}
    if name == "shuffle":
        return {"id": "shuffle", "elementsize": configuration["element_size"]}
    return None


def _packing_attrs(packing: Packing) -> dict[str, Any]:
    """How stored numbers become values, as CF attributes."""
    factors = {"scale_factor": packing.scale, "add_offset": packing.offset}
    attrs = {name: factor.item() for name, factor in factors.items() if factor is not None}
    marks = [mark.item() for mark in packing.missing]
    if marks:
        attrs["_FillValue"] = marks[0]
    if len(marks) > 1:
        attrs["missing_value"] = marks[1:]
    if packing.unsigned is not None:
        attrs["_Unsigned"] = "true" if packing.unsigned else "false"
    return attrs


def _loaded(dataset: Dataset, name: str, part: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """A coordinate, or another loaded variable, with its values in the references."""
    values, dims = dataset.values(name), dataset.dims(name)
    if values.dtype.kind not in "biufcSMm":
        raise UnreachableMembersError(
            f"{name} holds text ({values.dtype}), which references cannot store.\n  {EXPORT}"
        )
    chosen = values[tuple(slice(*part[dim]) if dim in part else slice(None) for dim in dims)]
    little = chosen.astype(chosen.dtype.newbyteorder("<"))
    attrs = {**dataset.attrs(name), "_ARRAY_DIMENSIONS": list(dims)}
    key = ".".join(["0"] * chosen.ndim) or "0"
    chunks = tuple(max(n, 1) for n in chosen.shape)
    metadata = _metadata(name, attrs, little.dtype, chosen.shape, chunks, None)
    return metadata | {f"{name}/{key}": _base64(little.tobytes())}


def _base64(content: bytes) -> str:
    return "base64:" + base64.b64encode(content).decode()


def _metadata(
    name: str,
    attrs: Mapping[str, Any],
    kind: np.dtype[Any],
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    fill: Any,
    encoding: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """The documents of an array of format 2, as zarr writes them; codecs need not be installed."""
    metadata = ArrayV2Metadata(
        shape=shape, chunks=chunks, dtype=parse_dtype(kind, zarr_format=2), fill_value=fill, order="C"
    )
    document = metadata.to_buffer_dict(default_buffer_prototype())[".zarray"].to_bytes()
    return {
        f"{name}/.zarray": json.dumps(json.loads(document) | dict(encoding or {})),
        f"{name}/.zattrs": json.dumps(dict(attrs), default=np.generic.tolist),  # fill values have types
    }
