"""Vectors of logical arrays: manifests of version 1 and 2."""

import json
from dataclasses import dataclass, field, replace

import numpy as np
from standard.vectors.generate.case import (
    GZIP,
    LITTLE,
    Case,
    array_files,
    document,
    edited,
    json_value,
)

KEY = "intarsia"
ENTRY = {
    "uuid": "6ad1d1a8-53a4-4d1f-9f0e-3c6f0b8e2a5c",
    "name": KEY,
    "description": "One logical array assembled from several Zarr arrays, each with its own encoding.",
}


@dataclass
class Member:
    """An array behind a logical array."""

    values: np.ndarray
    codecs: list = field(default_factory=lambda: [LITTLE])
    chunks: tuple | None = None
    data_type: object = None
    options: dict = field(default_factory=dict)

    def files(self):
        data_type = self.data_type or self.values.dtype.name
        chunks = self.chunks or tuple(max(1, n) for n in self.values.shape)
        return array_files(self.values, data_type, self.codecs, chunks, **self.options)


@dataclass
class Region:
    """A row of the region table, in logical chunks; and what the packing and the view are."""

    member: int
    start: tuple
    stop: tuple
    member_start: tuple | None = None
    packing: int = -1
    view: int = -1
    layer: int = 0


@dataclass
class Logical:
    """A logical array, made of what its manifest says."""

    shape: tuple
    chunks: tuple
    members: list
    regions: list
    data_type: object = "int16"
    fill_value: object = 0
    dimension_names: list | None = None
    packings: dict | None = None
    views: list | None = None
    columns: tuple = ()
    """Columns of version 2 that are written although they say nothing."""
    table: str | None = None
    table_chunks: tuple = (2, 3)

    @property
    def version(self):
        layers = any(region.layer for region in self.regions)
        return 2 if self.packings or self.views or self.columns or layers else 1

    def names(self):
        return [f"m-{i}" for i in range(len(self.members))]

    def manifest(self):
        found = {
            "version": self.version,
            "generation": 3,
            "shape": list(self.shape),
            "chunk_shape": list(self.chunks),
            "data_type": self.data_type,
            "fill_value": json_value(self.fill_value),
            "dimension_names": self.dimension_names,
            "members": self.names(),
            "regions": self.table or self.listed(),
        }
        if self.packings:
            kinds = self.packings["kinds"]
            count = len(self.packings["kind"])
            found["packings"] = {"kinds": kinds, "count": count} if self.table else self.packings
        return found | ({"views": self.views} if self.views else {})

    def listed(self):
        rows = [replace(r, member_start=r.member_start or (0,) * len(self.shape)) for r in self.regions]
        columns = {
            name: [getattr(r, name) for r in rows] for name in ("member", "start", "stop", "member_start")
        }
        for name, usual in (("packing", -1), ("view", -1), ("layer", 0)):
            values = [getattr(r, name) for r in rows]
            if name in self.columns or set(values) - {usual}:
                columns[name] = values
        return json.loads(json.dumps(columns))

    def rows(self):
        """The table as it is stored in an array."""
        zeros = (0,) * len(self.shape)
        found = [[r.member, *r.start, *r.stop, *(r.member_start or zeros)] for r in self.regions]
        if self.version == 2:
            packings = self.packings or {"kind": [], "scale": [], "offset": []}
            for i, (row, r) in enumerate(zip(found, self.regions, strict=True)):
                row += [r.packing, r.view, r.layer]
                inside = i < len(packings["kind"])
                row += [packings["kind"][i] if inside else 0]
                row += [_signed(packings[name][i]) if inside else 0 for name in ("scale", "offset")]
        return np.array(found, dtype="int64")

    def files(self):
        attributes = {"zarr_conventions": [ENTRY], KEY: self.manifest()}
        group = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
        files = {"zarr.json": document(group)}
        for name, member in zip(self.names(), self.members, strict=True):
            files |= {f"{name}/{key}": content for key, content in member.files().items()}
        if self.table:
            rows = array_files(self.rows(), "int64", [LITTLE, GZIP], self.table_chunks, fill_value=-9)
            files |= {f"{self.table}/{key}": content for key, content in rows.items()}
        return files


def _signed(bits):
    value = 0 if bits is None else int(bits, 16)
    return value - (1 << 64) if value >> 63 else value


def logical(path, about, described, expected):
    """A vector of a logical array that can be read."""
    dtype = object if isinstance(described.data_type, dict) else described.data_type
    expected = np.asarray(expected, dtype=dtype)
    assert expected.shape == tuple(described.shape), (path, expected.shape)
    return Case(path, about, "logical", described.files(), described.data_type, expected)


def refused(described, path, about, level, change=None, files=None):
    """A logical array with something wrong: in its manifest, or in its files."""

    def edit(group):
        manifest = group["attributes"][KEY]
        group["attributes"][KEY] = change(manifest) or manifest

    made = described.files()
    made = made if change is None else edited(made, edit)
    made = made if files is None else files(made) or made
    return Case(path, about, "logical", made, refused=(level, about))
