"""A logical array as a JSON spec of TensorStore: members as layers, each in its place, holes beneath."""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any

from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from intarsia.array.member import Encoding, checked_member, create_member
from intarsia.array.memory import type_text
from intarsia.errors import UnreachableMembersError
from intarsia.interop.views.kvstore import SERVE_INSTEAD, kvstore_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from intarsia.array import LogicalArray
    from intarsia.array.box import Box
    from intarsia.array.manifest import Manifest

__all__ = ["tensorstore_spec"]

DATA_TYPES = frozenset(
    ("bool", "float16", "float32", "float64", "complex64", "complex128")
    + tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
)
CODECS = frozenset(("blosc", "bytes", "crc32c", "gzip", "sharding_indexed", "transpose", "zstd"))
"""What the zarr3 driver of TensorStore 0.1.86 decodes."""

NOWHERE = "intarsia/holes/"
"""A directory of TensorStore's memory in which nothing is ever stored."""


def tensorstore_spec(array: LogicalArray) -> dict[str, Any]:
    """What `tensorstore.open` turns into the whole logical array: plain JSON, to be kept or sent.

    TensorStore then reads the members by itself, from local files, zip files, object stores or web servers;
    what no region covers is the fill value there too. The spec describes the layout of this moment: after
    a change of the layout it is made anew. Members in memory or in an Icechunk repository, and codecs that
    TensorStore does not know, are refused; `intarsia.serve` gives it those.

    >>> import intarsia, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     array = intarsia.create(folder, "t", shape=(4,), chunks=(2,), dtype="i4")
    ...     array.add_region([(0, 2)], data=[1, 2], codecs=["gzip"])
    ...     spec = intarsia.tensorstore_spec(array)
    >>> spec["driver"], [layer["driver"] for layer in spec["layers"]]
    ('stack', ['zarr3', 'zarr3'])
    """
    manifest = array.manifest
    name = manifest.data_type.to_json(zarr_format=3)
    if not isinstance(name, str) or name not in DATA_TYPES:
        raise UnreachableMembersError(
            f"the array is of {type_text(manifest.data_type)}, a data type that TensorStore does not have"
        )
    labels = [label or "" for label in manifest.dimension_names or ()]
    named = [label for label in labels if label]
    if len(set(named)) < len(named):
        raise UnreachableMembersError(
            f"the dimensions are {manifest.dimension_names}: TensorStore opens no array with two of one name"
        )
    covered = manifest.regions.cells()
    layers = list(_layers(array))
    if covered < prod(manifest.lattice) or not layers:
        layers.insert(0, _holes(manifest))
    domain: dict[str, Any] = {"inclusive_min": [0] * manifest.ndim, "exclusive_max": list(manifest.shape)}
    if labels:
        domain["labels"] = labels
    return {"driver": "stack", "dtype": name, "layers": layers, "schema": {"domain": domain}}


def _layers(array: LogicalArray) -> Iterator[dict[str, Any]]:
    """One for each region: a box of its member, moved to where it belongs."""
    manifest, members = array.manifest, array.members
    members.open_together(manifest.members)
    places: dict[str, dict[str, Any]] = {}
    for i in range(len(manifest.regions)):
        row = manifest.regions.row(i)
        name = manifest.members[row.member]
        member = checked_member(members, name, manifest, row)
        if name not in places:
            _check_codecs(name, json.loads(_document(member))["codecs"])
            places[name] = kvstore_of(array.store, member.path)
        transform = _transform(manifest.elements(row.box), manifest.member_shift(row))
        yield {"driver": "zarr3", "kvstore": places[name], "transform": transform}


def _holes(manifest: Manifest) -> dict[str, Any]:
    """An array of the whole shape without a stored chunk.

    Not TensorStore's own `array` driver, which has no complex numbers as JSON.
    """
    empty = create_member(MemoryStore(), None, manifest, manifest.shape, Encoding([]))
    document = json.loads(_document(empty))
    return {
        "driver": "zarr3",
        "kvstore": {"driver": "memory", "path": NOWHERE},
        "assume_metadata": True,
        "metadata": {key: value for key, value in document.items() if key != "attributes"},
    }


def _transform(box: Box, moved: tuple[int, ...]) -> dict[str, Any]:
    output = [{"input_dimension": axis, "offset": by} for axis, by in enumerate(moved)]
    return {"input_inclusive_min": list(box.start), "input_exclusive_max": list(box.stop), "output": output}


def _document(member: Any) -> bytes:
    document: bytes = member.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    return document


def _check_codecs(member: str, codecs: list[dict[str, Any]]) -> None:
    for codec in codecs:
        if codec["name"] not in CODECS:
            raise UnreachableMembersError(
                f"TensorStore does not know the codec {codec['name']!r} of the member {member}.\n"
                f"  {SERVE_INSTEAD}\n"
                "  Or encode the region anew: array.recode(bounds, codecs=[…])"
            )
        configuration = codec.get("configuration", {})
        _check_codecs(member, configuration.get("codecs", []) + configuration.get("index_codecs", []))
