"""A logical array as a TensorStore JSON spec: members as layers, each in its kvstore, with holes beneath."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from zarr.core.buffer import default_buffer_prototype
from zarr.storage import FsspecStore, LocalStore, ObjectStore, ZipStore

from intarsia.engine.prepared_member import checked_member
from intarsia.engine.stored_array import expect_array
from intarsia.errors import UnreachableMembersError
from intarsia.logical.encoding import Encoding, planned_metadata
from intarsia.logical.logical_array import LogicalArray
from intarsia.manifest.box import Box
from intarsia.manifest.data_types import type_text
from intarsia.manifest.manifest import Manifest
from intarsia.manifest.region_table import Row
from intarsia.manifest.view import View

DATA_TYPES = frozenset(
    ("bool", "float16", "float32", "float64", "complex64", "complex128")
    + tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
)
NOWHERE = "intarsia/holes/"
"""A directory of TensorStore's memory in which nothing is ever stored."""

SERVE_INSTEAD = (
    "TensorStore reads it over HTTP: with intarsia.serve(array) as server, "
    '{"driver": "zarr3", "kvstore": server.url}.\n'
    "  Or copy it to plain Zarr, which TensorStore opens: intarsia.export(array, 'plain.zarr')"
)


def tensorstore_spec(array: LogicalArray) -> dict[str, Any]:
    """A spec that `tensorstore.open` turns into the whole logical `array`: plain JSON, to keep or send.

    TensorStore then reads the members by itself, from local files, zip files, object stores or web servers;
    holes read as the fill value there too. The spec describes the current layout: make a new one after the
    layout has changed. Views of members become index transforms. Members in memory or in an Icechunk
    repository, and packed regions are refused; use `intarsia.serve` for those, and for codecs that
    TensorStore does not know.

    >>> import intarsia, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     array = intarsia.create(folder, "t", shape=(4,), chunks=(2,), dtype="i4")
    ...     array.add_region([(0, 2)], data=[1, 2], codecs=["gzip"])
    ...     spec = intarsia.tensorstore_spec(array)
    >>> spec["driver"], [layer["driver"] for layer in spec["layers"]]
    ('stack', ['zarr3', 'zarr3'])
    """
    expect_array(array, "tensorstore_spec")
    manifest = array.manifest
    name = manifest.data_type.to_json(zarr_format=3)
    if not isinstance(name, str) or name not in DATA_TYPES:
        raise UnreachableMembersError(
            f"the array has the data type {type_text(manifest.data_type)}, which TensorStore lacks"
        )
    labels = [label or "" for label in manifest.dimension_names or ()]
    layers = list(_layers(array))
    if not manifest.regions.covers(Box.sized(manifest.lattice)) or not layers:
        layers.insert(0, _holes(manifest))
    domain: dict[str, Any] = {"inclusive_min": [0] * manifest.ndim, "exclusive_max": list(manifest.shape)}
    if labels:
        domain["labels"] = labels
    return {"driver": "stack", "dtype": name, "layers": layers, "schema": {"domain": domain}}


def _layers(array: LogicalArray) -> Iterator[dict[str, Any]]:
    """One layer for each region: a box of its member, moved to where it belongs."""
    manifest, members = array.manifest, array.members
    members.open_together(manifest.members)
    for i in range(len(manifest.regions)):
        row = manifest.regions.row(i)
        name, packing = manifest.members[row.member], manifest.packing_of(row)
        if packing is not None:
            raise UnreachableMembersError(
                f"the region {manifest.elements(row.box).text()} is packed ({packing}), which a TensorStore "
                f"spec cannot express.\n  {SERVE_INSTEAD}"
            )
        member = checked_member(members[name], manifest, row)
        kvstore = kvstore_of(array.store, member.path)
        yield {"driver": "zarr3", "kvstore": kvstore, "transform": _transform(manifest, row)}


def _holes(manifest: Manifest) -> dict[str, Any]:
    """An array of the whole shape without any stored chunk.

    This does not use TensorStore's own `array` driver, which cannot write complex numbers as JSON.
    """
    metadata = planned_metadata(manifest, manifest.shape, Encoding([]))
    document = json.loads(metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes())
    return {
        "driver": "zarr3",
        "kvstore": {"driver": "memory", "path": NOWHERE},
        "assume_metadata": True,
        "metadata": {key: value for key, value in document.items() if key != "attributes"},
    }


def _transform(manifest: Manifest, row: Row) -> dict[str, Any]:
    """The transform from elements of the array to those of the member: the view, moved to the region."""
    box, shift = manifest.elements(row.box), manifest.member_shift(row)
    output: list[dict[str, int]] = []
    for source, offset, stride in (manifest.view_of(row) or View.identity(manifest.ndim)).axes:
        if source is None:
            output.append({"offset": offset})
        else:
            axis = {"input_dimension": source, "offset": offset + stride * shift[source]}
            output.append(axis if stride == 1 else axis | {"stride": stride})
    return {"input_inclusive_min": list(box.start), "input_exclusive_max": list(box.stop), "output": output}


def kvstore_of(store: Any, path: str) -> dict[str, Any] | str:
    """Where TensorStore finds the directory `path` of a store. It takes credentials from its own environment.

    >>> kvstore_of(LocalStore("/data/a.zarr"), "t")
    {'driver': 'file', 'path': '/data/a.zarr/t/'}
    """
    kvstore = None
    if isinstance(store, LocalStore):
        kvstore = _kvstore(f"file://{os.path.abspath(store.root)}", path)
    elif isinstance(store, ZipStore) and store.path is not None:
        archive = {"driver": "file", "path": str(Path(store.path).absolute())}
        kvstore = {"driver": "zip", "base": archive, "path": f"{path}/"}
    elif isinstance(store, FsspecStore):
        kvstore = _of_fsspec(store, path)
    elif isinstance(store, ObjectStore):
        kvstore = _of_obstore(store.store, path)
    if kvstore is None:
        raise UnreachableMembersError(
            "TensorStore cannot read the members where they are: in a store of type "
            f"{type(store).__name__}, not in files or objects that it could open itself.\n  {SERVE_INSTEAD}"
        )
    return kvstore


def _of_fsspec(store: FsspecStore, path: str) -> dict[str, Any] | str | None:
    fs, url = store.fs, str(store.path)
    if "://" not in url:
        protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
        url = f"{protocol}://{url}"
    settings: dict[str, Any] = getattr(fs, "client_kwargs", None) or {}
    endpoint = getattr(fs, "endpoint_url", None) or settings.get("endpoint_url")
    return _kvstore(url, path, endpoint, settings.get("region_name"), getattr(fs, "anon", False))


def _of_obstore(store: Any, path: str) -> dict[str, Any] | str | None:
    prefix = getattr(store, "prefix", None) or ""
    match type(store).__name__:
        case "LocalStore":
            return _kvstore(f"file://{prefix}", path)
        case "HTTPStore":
            return _kvstore(str(store.url), path)
        case "GCSStore":
            return _kvstore(f"gs://{store.config['bucket']}/{prefix}", path)
        case "S3Store":
            settings = store.config
            anonymous = str(settings.get("skip_signature", "")).lower() == "true"
            url = f"s3://{settings['bucket']}/{prefix}"
            return _kvstore(url, path, settings.get("endpoint"), settings.get("region"), anonymous)
    return None


def _kvstore(
    url: str, path: str, endpoint: Any = None, region: Any = None, anonymous: bool = False
) -> dict[str, Any] | str | None:
    scheme, _, rest = url.partition("://")
    place = f"{rest.rstrip('/')}/{path}/"
    match scheme:
        case "file" | "local":
            return {"driver": "file", "path": place}
        case "http" | "https":
            return f"{scheme}://{rest.rstrip('/')}/{quote(path)}/"
        case "gs" | "gcs":
            return f"gs://{quote(place)}"
        case "s3" | "s3a":
            bucket, _, inside = place.partition("/")
            credentials = {"type": "anonymous"} if anonymous else None
            access = {"endpoint": endpoint, "aws_region": region, "aws_credentials": credentials}
            stated = {name: value for name, value in access.items() if value}
            return {"driver": "s3", "bucket": bucket, "path": inside, **stated}
    return None
