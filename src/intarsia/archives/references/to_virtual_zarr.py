"""Uniform parts of an ingested dataset as virtual Zarr arrays in an Icechunk repository.

Programs that read Zarr v3 with Icechunk open them without intarsia: nothing in them is specific to it.
"""

from __future__ import annotations

from typing import Any

import icechunk
import zarr

from intarsia.archives.cf import encoded_fill_attribute, json_attributes
from intarsia.archives.dataset import Dataset
from intarsia.archives.references.uniform_parts import EXPORT, UniformArray, uniform_parts
from intarsia.archives.write_plan import write_plain
from intarsia.errors import UnreachableMembersError
from intarsia.logical.chunk_copies import ChunkMove, copy_chunks
from intarsia.progress import Progress


class VirtualParts:
    """The uniform parts of a dataset, to be written; a part that cannot be virtual arrays is refused."""

    def __init__(self, store: icechunk.IcechunkStore, path: str) -> None:
        self._dataset = Dataset.read(store, path)
        self._parts = list(uniform_parts(self._dataset, path))
        for part in self._parts:
            for array in part.arrays:
                _check_known_without_intarsia(array)

    def write(self, group: zarr.Group, progress: Progress) -> None:
        """Write each part into a group of its own, or the only one into `group` itself.

        Steps of the progress are variables.
        """
        total, done = sum(len(part.arrays) for part in self._parts), 0
        progress(0, total)
        for part in self._parts:
            target = group.create_group(part.name) if part.name else group
            target.update_attributes(json_attributes(self._dataset.group_attrs))
            for name, plain in part.loaded.items():
                write_plain(target, name, plain)
            for array in part.arrays:
                created = _create(target, array)
                if array.member is not None and array.table is not None:
                    places = array.table.index
                    moves = [ChunkMove(tuple(places[row].tolist()), at) for at, row in array.stored_chunks()]
                    copy_chunks(array.member, created, moves, refer_unread=True)
                done += 1
                progress(done, total)


def _check_known_without_intarsia(array: UniformArray) -> None:
    """Refuse codecs and data types that only intarsia has."""
    if array.member is None:
        return
    metadata: Any = array.member.metadata
    for each in (metadata.data_type, *metadata.codecs, *metadata.inner_codecs):
        if type(each).__module__.partition(".")[0] == "intarsia":
            document = each.to_json(zarr_format=3) if each is metadata.data_type else each.to_dict()
            raise UnreachableMembersError(
                f"{array.name} is stored with {document['name']!r}, which zarr does not have without "
                f"intarsia.\n  {EXPORT}"
            )


def _create(group: zarr.Group, array: UniformArray) -> zarr.Array[Any]:
    """The array without chunks, in the encoding of the member."""
    attrs = dict(array.attrs)
    if "_FillValue" in attrs:
        attrs["_FillValue"] = encoded_fill_attribute(attrs["_FillValue"], array.dtype)
    if array.member is None:
        return group.create_array(
            array.name, shape=array.shape, chunks=array.chunks, dtype=array.dtype,
            fill_value=array.fill_value, dimension_names=array.dims, attributes=json_attributes(attrs),
        )  # fmt: skip
    encoding: Any = array.member.metadata.to_dict()
    document = encoding | {"shape": list(array.shape), "dimension_names": array.dims, "attributes": {}}
    created: zarr.Array[Any] = zarr.Array.from_dict(group.store_path / array.name, document)
    return created.update_attributes(json_attributes(attrs))  # writes all of it
