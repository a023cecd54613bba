"""`intarsia.archives.to_kerchunk`: an ingested dataset as kerchunk references, for programs without intarsia.

Each of the `uniform_parts` of a dataset becomes a set of references: a dataset of Zarr format 2 whose chunks
are ranges of the source files.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import zarr
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.metadata.v2 import ArrayV2Metadata
from zarr.dtype import parse_dtype

from intarsia._compat import sync
from intarsia._icechunk import VIRTUAL
from intarsia.archives.dataset import Dataset
from intarsia.archives.plan.coordinates import PlainArray
from intarsia.archives.references.uniform_parts import EXPORT, UniformArray, uniform_parts
from intarsia.display import codecs_text
from intarsia.errors import UnreachableMembersError
from intarsia.extras import import_extra
from intarsia.manifest.box import chunk_grid
from intarsia.versions.authorization import Allowed
from intarsia.versions.repository import explain_errors
from intarsia.versions.storage_options import FILE
from intarsia.versions.version import Version, resolve_store


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
    resolved = resolve_store(store, Version(branch, tag, snapshot_id), authorize, storage_options)
    with explain_errors(resolved.repo):
        dataset = Dataset.read(resolved.store, path.strip("/"))
        parts = list(uniform_parts(dataset, path))
    sets = []
    for part in parts:
        place = f"-{part.name}" if part.name else ""
        target = Path(file).with_name(f"{Path(file).stem}{place}{Path(file).suffix}")
        refs: dict[str, Any] = {".zgroup": '{"zarr_format": 2}', ".zattrs": json.dumps(dataset.group_attrs)}
        for array in part.arrays:
            refs |= _references(array)
        chunks = sum(isinstance(each, list) for each in refs.values())
        for name, plain in part.loaded.items():
            refs |= _loaded(name, plain)
        sets.append((target, refs, KerchunkFile(str(target), part.bounds, chunks)))
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


def _references(array: UniformArray) -> dict[str, Any]:
    """The metadata and chunks of an array."""
    chunks, table, member = list(array.stored_chunks()), array.table, array.member
    dtype, encoding = (array.dtype, {}) if member is None else _encoding(array.name, member)
    refs: dict[str, Any] = {**_metadata(array, dtype, _fill_value(array, len(chunks)), **encoding)}
    if table is None or member is None:
        return refs
    for index, row in chunks:
        location = unquote(table.location[row].removeprefix(FILE))  # as fsspec takes it
        place: Any = [location, int(table.offset[row]), int(table.nbytes[row])]
        if table.kind[row] != VIRTUAL:
            place = _base64(_stored(member, tuple(table.index[row].tolist())))
        refs[f"{array.name}/{_key(index)}"] = place
    return refs


def _stored(member: zarr.Array[Any], index: tuple[int, ...]) -> bytes:
    """The encoded bytes of a chunk that the repository itself holds."""
    key = f"{member.path}/{member.metadata.encode_chunk_key(index)}"
    content = sync(member.store.get(key, default_buffer_prototype()))
    if content is None:
        raise UnreachableMembersError(f"{key} is gone: somebody else changes the store")
    return bytes(content.to_bytes())


def _fill_value(array: UniformArray, stored: int) -> Any:
    """The fill value in format 2, where it also marks missing values, as xarray reads it.

    Without one, chunks that are not stored are zeros, and no number is missing.
    """
    own, mark = array.fill_value, array.attrs.get("_FillValue")
    unlike = not np.array_equal(own, 0 if mark is None else mark, equal_nan=array.dtype.kind in "fc")
    if not unlike or stored == prod(chunk_grid(array.shape, array.chunks)):
        return mark
    if mark is None and (array.member is None or own != own):  # a hole, or NaN, which is missing in any case
        return own
    raise UnreachableMembersError(
        f"{array.name} has chunks that are not stored, whose value {own} is not that of missing values "
        f"({mark}): references cannot express both.\n  {EXPORT}"
    )


def _key(index: tuple[int, ...]) -> str:
    return ".".join(map(str, index)) or "0"


def _encoding(name: str, member: zarr.Array[Any]) -> tuple[np.dtype[Any], dict[str, Any]]:
    """The data type, filters, compressor and order with which Zarr format 2 decodes a member's chunks."""
    dtype, order, chain = np.dtype(member.dtype), "C", []
    for codec in member.metadata.codecs:  # type: ignore[union-attr]  # members are v3
        if isinstance(codec, TransposeCodec) and codec.order == tuple(reversed(range(member.ndim))):
            order = "F"
        elif isinstance(codec, BytesCodec):
            dtype = dtype.newbyteorder(codec.endian or "=")
        elif (known := _in_format_2(codec)) is not None:
            chain.append(known)
        else:
            raise UnreachableMembersError(
                f"{name} is encoded by {codecs_text([codec.to_dict()])}, which Zarr format 2 does not have.\n"
                f"  {EXPORT}"
            )
    # Format 2 encodes with all filters, then the compressor, so the last codec is the compressor.
    compressor = chain.pop() if chain else None
    return dtype, {"filters": chain or None, "compressor": compressor, "order": order}


SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
"""Blosc's ways to shuffle, in the order of their numbers."""


def _in_format_2(codec: Any) -> dict[str, Any] | None:
    """A bytes -> bytes codec as numcodecs writes it into metadata of format 2; None if that is impossible."""
    document = codec.to_dict()
    name, configuration = str(document.get("name", "")), dict(document.get("configuration") or {})
    if isinstance(codec, BloscCodec):
        configuration["shuffle"] = SHUFFLES.index(configuration["shuffle"])
        configuration.pop("typesize", None)
    elif not isinstance(codec, GzipCodec | ZstdCodec) and not name.startswith("numcodecs."):
        return None
    return configuration | {"id": name.removeprefix("numcodecs.")}


def _loaded(name: str, array: PlainArray) -> dict[str, Any]:
    """A coordinate, or another loaded variable, with its values in the references."""
    values = array.values
    if values.dtype.kind not in "biufcSMm":
        raise UnreachableMembersError(
            f"{name} holds text ({values.dtype}), which references cannot store.\n  {EXPORT}"
        )
    little = values.astype(values.dtype.newbyteorder("<"))
    chunks = tuple(max(n, 1) for n in values.shape)
    whole = UniformArray(name, list(array.dims), array.attrs, values.shape, chunks, little.dtype, None, None)
    metadata = _metadata(whole, little.dtype, None)
    return metadata | {f"{name}/{_key((0,) * values.ndim)}": _base64(little.tobytes())}


def _base64(content: bytes) -> str:
    return "base64:" + base64.b64encode(content).decode()


def _metadata(array: UniformArray, dtype: np.dtype[Any], fill: Any, **encoding: Any) -> dict[str, str]:
    """The documents of an array of format 2, as zarr writes them; codecs need not be installed."""
    metadata = ArrayV2Metadata(
        shape=array.shape, chunks=array.chunks, dtype=parse_dtype(dtype, zarr_format=2), fill_value=fill,
        order="C",
    )  # fmt: skip
    document = metadata.to_buffer_dict(default_buffer_prototype())[".zarray"].to_bytes()
    own = {**array.attrs, "_ARRAY_DIMENSIONS": array.dims}
    return {
        f"{array.name}/.zarray": json.dumps(json.loads(document) | encoding),
        f"{array.name}/.zattrs": json.dumps(own, default=np.generic.tolist),  # fill values have types
    }
