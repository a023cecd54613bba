"""Writing one dataset into one group: first everything is checked, then everything is written."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from xarray import Variable, conventions
from xarray.backends import ZarrStore
from xarray.backends.common import ArrayWriter
from xarray.backends.zarr import FillValueCoder, encode_zarr_attr_value, extract_zarr_variable_encoding

from intarsia.errors import DataTypeError, ShapeError
from intarsia.interop.write_jobs import Cluster, WriteJob, append_along, codecs_for, new_array, run_jobs
from intarsia.interop.xarray.backend import GroupStore
from intarsia.logical.attributes import UNLIMITED_KEY
from intarsia.logical.encoding import Encoding
from intarsia.logical.hierarchy import is_logical
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.manifest.box import parse_shape

if TYPE_CHECKING:
    import xarray as xr


GROWING_CHUNK = 1024
"""The least chunk size of a coordinate on a growing dimension: a year of daily appends is one chunk."""


CF_ENCODING = ("units", "calendar", "scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")
"""Attributes that say how stored numbers are meant."""


CODECS = ("filters", "serializer", "compressors")
"""Keys of xarray's encoding that make up a codec list."""

STORAGE = frozenset(("chunks", "shards", *CODECS))
"""Keys of xarray's encoding that say how the chunks of an array are stored."""


@dataclass(frozen=True)
class Choices:
    """The choices of the caller of `from_xarray`."""

    append_dim: str | None
    codecs: Any
    lattice: Mapping[str, Any]
    encoding: Mapping[str, Mapping[str, Any]]
    unlimited_dims: tuple[str, ...] | None
    overwrite: bool

    def codecs_of(self, name: str) -> Any:
        """The codecs of one variable."""
        return self.codecs.get(name) if isinstance(self.codecs, Mapping) else self.codecs

    def check_names(self, known: set[Hashable]) -> None:
        """Refuse choices for variables that do not exist."""
        by_name = self.codecs if isinstance(self.codecs, Mapping) else {}
        names = set().union(self.lattice, self.encoding, by_name)
        unknown = sorted(names - known)
        if unknown:
            raise KeyError(f"codecs, lattice or encoding name {unknown[0]!r}, which the dataset lacks")


class DatasetWriter:
    """One dataset on its way into one group."""

    def __init__(self, dataset: xr.Dataset, group: zarr.Group, choices: Choices, cluster: Cluster) -> None:
        self.dataset, self.group, self.choices, self.cluster = dataset, group, choices, cluster
        self.growing = _growing_dimensions(dataset, choices)
        mode = "w" if choices.overwrite else "a"
        self.plain = ZarrStore(group, mode=mode, append_dim=choices.append_dim, safe_chunks=False)
        self.stored: dict[str, Any] = dict(self.plain.members)
        variables, attributes = conventions.encode_dataset_coordinates(dataset)
        for name in choices.encoding.keys() & variables.keys():
            variables[name].encoding = dict(choices.encoding[name])
        self.variables = {_check_name(name): variable for name, variable in variables.items()}
        self.attributes = {key: encode_zarr_attr_value(value) for key, value in attributes.items()}

    def write(self) -> None:
        """Check everything, and then write everything."""
        grown = self._grown()
        fixed = set() if self.choices.append_dim is None else self.stored.keys() - grown
        encoded = {name: self._encoded(name, name in grown) for name in self.variables if name not in fixed}
        logical = {name for name, variable in encoded.items() if self._is_logical(name, variable)}
        attributes = self.attributes | ({UNLIMITED_KEY: sorted(self.growing)} if self.growing else {})

        def write_plain() -> None:
            check = frozenset(self.choices.encoding)
            for name in [name for name in encoded if name not in logical]:
                # In memory, so that xarray's writer writes it at once.
                self.plain.set_variables({name: encoded[name].compute()}, check, ArrayWriter())
            if not grown:  # a dataset that is appended to keeps its own attributes
                self.group.update_attributes(attributes)

        jobs = (self._job(name, encoded[name], name in grown) for name in encoded if name in logical)
        run_jobs(jobs, self.cluster, write_plain)

    def _grown(self) -> set[str]:
        """The variables of the group that grow; refused if that does not make one dataset."""
        dim = self.choices.append_dim
        if dim is None:
            taken = sorted(self.variables.keys() & self.stored.keys())
            if taken and not self.choices.overwrite:
                raise FileExistsError(
                    f"the group {self.group.path or '/'!r} already has {', '.join(taken)}.\n"
                    "  To add to them, give append_dim; to replace them, overwrite=True"
                )
            return set()
        lengths = {name: there.sizes[dim] for name, there in self.decoded.items() if dim in there.dims}
        along = {name for name, variable in self.variables.items() if dim in variable.dims}
        uneven = along ^ lengths.keys()
        if not any(lengths.values()):
            uneven &= self.decoded.keys()  # new variables may have a dimension that is still empty
        if uneven:
            raise ShapeError(
                f"only one of the dataset and the group has {min(uneven)!r} with the dimension {dim!r}: "
                "variables would no longer have the same length"
            )
        for name in self.dataset.coords.keys() & self.decoded.keys() - along:
            if not self.dataset[name].variable.equals(self.decoded[str(name)]):
                raise ValueError(
                    f"the coordinate {name!r} differs from the stored one, but does not have the dimension "
                    f"{dim!r} along which the dataset is appended"
                )
        return along & lengths.keys()

    @cached_property
    def decoded(self) -> dict[str, Variable]:
        """The variables in the group, decoded, and so with their encoding."""
        decoded, _, _ = conventions.decode_cf_variables(self.raw, {})
        return dict(decoded)

    @cached_property
    def raw(self) -> dict[str, Variable]:
        """The variables in the group, as stored."""
        return GroupStore(self.group).get_variables()

    def _encoded(self, name: str, grows: bool) -> Variable:
        """A new variable in its own encoding, or a growing one in the encoding of the stored values."""
        variable, overrides = self.variables[name].copy(deep=False), self.choices.encoding.get(name, {})
        if grows:
            decoded, raw = self.decoded[name], self.raw[name]
            variable = _in_stored_order(name, variable, decoded, self.choices.append_dim)
            _check_type(name, variable, decoded)
            own = _encoding_of_values(decoded.encoding, raw.encoding)
            variable.encoding = own | {key: overrides[key] for key in overrides if key not in STORAGE}
        elif variable.ndim == 1 and variable.dims[0] in self.growing:
            variable.encoding.setdefault("chunks", (max(GROWING_CHUNK, variable.size),))
        encoded: Variable = self.plain.encode_variable(variable, name=name)
        if encoded.encoding.get("_FillValue", "unset") is None:  # xarray's word for no such attribute
            del encoded.encoding["_FillValue"]
        if overrides:
            _check_keys(name, encoded)
        if grows:
            _check_encoding(name, encoded, raw)
            fixed = {"fill_value"} if is_logical(self.stored[name]) else {"fill_value", *STORAGE}
            for key in sorted(fixed & overrides.keys()):
                if overrides[key] is not None and not _is_same(overrides[key], raw.encoding.get(key)):
                    raise ValueError(
                        f"encoding of {name!r}: {key!r} of an array that exists cannot be changed.\n"
                        "  Leave it out when you append"
                    )
        return encoded

    def _is_logical(self, name: str, variable: Variable) -> bool:
        if name in self.stored and not self.choices.overwrite:
            return is_logical(self.stored[name])
        return name in self.dataset.data_vars and variable.ndim > 0 and variable.dtype.kind in "biufc"

    def _job(self, name: str, variable: Variable, grows: bool) -> WriteJob:
        data = variable.data
        if not hasattr(data, "dask"):
            data = np.asarray(data)
        if data.dtype.byteorder == ">":
            data = data.astype(data.dtype.newbyteorder("="))  # a member's codecs decide how bytes are stored
        encoding = self._storage(name, variable, data, grows)
        if grows:
            axis = variable.dims.index(self.choices.append_dim)
            return append_along(data, LogicalArrayHandle.load(self.stored[name]), axis, encoding)
        attributes = {key: encode_zarr_attr_value(value) for key, value in variable.attrs.items()}
        if attributes.get("_FillValue") is not None:
            attributes["_FillValue"] = FillValueCoder.encode(variable.attrs["_FillValue"], data.dtype)
        fill_value = variable.encoding.get("fill_value")
        if fill_value is None and data.dtype.kind == "f":
            fill_value = np.nan  # as in xarray: values never written are missing
        return new_array(
            data,
            self.group,
            name,
            encoding,
            lattice=self.choices.lattice.get(name),
            fill_value=fill_value,
            dimension_names=variable.dims,
            attributes=attributes,
            overwrite=self.choices.overwrite,
        )

    def _storage(self, name: str, variable: Variable, data: Any, grows: bool) -> Encoding:
        """How the chunks of a logical array are stored: as the options say, or the keys of its `encoding`."""
        codecs, overrides = self.choices.codecs_of(name), self.choices.encoding.get(name, {})
        unused = sorted(overrides.keys() & {"write_empty_chunks", "chunk_key_encoding", "cache_metadata"})
        if unused:
            raise ValueError(f"encoding of {name!r}: a logical array takes no {unused[0]!r}; leave it out")
        stated = {key: overrides[key] for key in CODECS if key in overrides}
        if stated and codecs is not None:
            raise ValueError(f"encoding of {name!r}: codecs are an option as well; give them once")
        codecs = _codec_list(data, stated) if stated else codecs_for(data, codecs)
        chunks = _sizes("chunks", (overrides if grows else variable.encoding).get("chunks"), variable)
        return Encoding(codecs, chunks, _sizes("shards", overrides.get("shards"), variable))


def _growing_dimensions(dataset: xr.Dataset, choices: Choices) -> set[Any]:
    """The dimensions that grow."""
    if choices.unlimited_dims is None:  # those of other dimensions were selected away
        growing = set(dataset.encoding.get("unlimited_dims", ())) & set(dataset.dims)
    else:
        growing = set(choices.unlimited_dims)
    if choices.append_dim is not None:
        growing.add(choices.append_dim)
    missing = growing - set(dataset.dims)
    if missing:
        raise ShapeError(
            f"append_dim and unlimited_dims: {min(missing)!r} is not a dimension of the dataset: "
            f"{tuple(dataset.dims)}"
        )
    return growing


def _check_name(name: Any) -> str:
    """A variable's name, if it is a valid name for a node in a Zarr group."""
    if not isinstance(name, str) or not name or "/" in name or name.startswith("__") or name in (".", ".."):
        raise ValueError(f"{name!r} cannot be the name of an array in a Zarr group; rename the variable")
    return name


def _in_stored_order(name: str, variable: Variable, stored: Variable, dim: Any) -> Variable:
    """The variable with its dimensions in the stored order; refused if it cannot go after the stored one."""
    expected = dict(stored.sizes) | {dim: variable.sizes[dim]}
    if dict(variable.sizes) != expected:
        raise ShapeError(
            f"the variable {name!r} has {dict(variable.sizes)}, but only {expected} fits after the stored one"
        )
    return variable.transpose(*stored.dims)


def _encoding_of_values(encoding: Mapping[Any, Any], stored: Mapping[Any, Any]) -> dict[Any, Any]:
    """The encoding in which an array takes appended data: plain values if its regions pack by themselves."""
    own = stored.keys() & set(CF_ENCODING)
    if not own:
        return dict(encoding)
    others = {key: value for key, value in encoding.items() if key not in own | {"dtype", "fill_value"}}
    return {"_FillValue": None} | others


def _check_keys(name: str, encoded: Variable) -> None:
    """Refuse an encoding with keys that nothing has used, as xarray does for its own Zarr arrays."""
    shapeless = Variable(encoded.dims, np.empty((0,) * encoded.ndim), {}, encoded.encoding)
    try:
        extract_zarr_variable_encoding(shapeless, raise_on_invalid=True, name=name, zarr_format=3)
    except ValueError as error:
        raise ValueError(f"encoding of {name!r}: {error}") from error


def _codec_list(data: Any, options: Mapping[str, Any]) -> Any:
    """The codecs that zarr makes of these options of `zarr.create_array`."""
    metadata: Any = zarr.create_array({}, shape=(1,) * data.ndim, dtype=data.dtype, **options).metadata
    return metadata.codecs


def _sizes(what: str, sizes: Any, variable: Variable) -> tuple[int, ...] | None:
    """Chunk or shard sizes of an encoding: one for each dimension, or one for all.

    As in xarray, those for another number of dimensions are left out: they are from before a selection.
    """
    if sizes is None:
        return None
    every = parse_shape(sizes, what)
    if not np.iterable(sizes):
        every *= variable.ndim
    return every if len(every) == variable.ndim else None


def _check_type(name: str, variable: Variable, stored: Variable) -> None:
    """Refuse values that the stored type would round; xarray only warns."""
    numbers = variable.dtype.kind in "biufc" and stored.dtype.kind in "biufc"
    if numbers and not np.can_cast(variable.dtype, stored.dtype, "same_kind"):
        raise DataTypeError(
            f"the variable {name!r} is {variable.dtype}, but the stored one is {stored.dtype}, "
            "which cannot hold them all"
        )


def _check_encoding(name: str, encoded: Variable, stored: Variable) -> None:
    """Refuse data that cannot be stored in the same way as the existing data: its units would differ."""
    for key in CF_ENCODING:
        new, old = encoded.attrs.get(key), stored.attrs.get(key)
        if _is_same(new, old) or (key in ("units", "calendar") and _same_times(name, encoded, stored)):
            continue
        raise ValueError(
            f"the variable {name!r} can only be stored with {key} = {new!r}, but the stored data has "
            f"{key} = {old!r}.\n"
            f"  Write a new array with an encoding that suits both: encoding={{{name!r}: {{{key!r}: …}}}}"
        )


def _same_times(name: str, encoded: Variable, stored: Variable) -> bool:
    """Whether numbers mean the same times, however their units are written: two numbers tell."""
    times = [
        conventions.decode_cf_variable(name, Variable("p", np.arange(2, dtype=encoded.dtype), variable.attrs))
        for variable in (encoded, stored)
    ]
    return bool(times[0].equals(times[1]))


def _is_same(new: Any, old: Any) -> bool:
    """Whether two values of an encoding are equal; NaN is equal to NaN."""
    return bool(new == old or (new != new and old != old))
