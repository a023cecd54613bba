"""The backend that xarray knows as `engine="intarsia"`: a Zarr group as a dataset.

Its variables are the logical arrays and plain arrays of the group.
"""

import datetime
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import icechunk
import xarray as xr
import zarr
from xarray import Variable
from xarray.backends import AbstractDataStore, BackendEntrypoint, StoreBackendEntrypoint
from zarr.errors import ContainsArrayError

from intarsia.archives.source_files import WILDCARDS
from intarsia.display import place_text
from intarsia.engine.reader import Reader
from intarsia.errors import MissingGroupError, NotLogicalArrayError
from intarsia.interop.xarray.variables import variables_of
from intarsia.logical.attributes import UNLIMITED_KEY, with_floats
from intarsia.logical.hierarchy import LEDGER, groups_below, is_logical, open_group, why_missing
from intarsia.logical.logical_array import LogicalArray
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.nullable.without_nulls import NullsChoice
from intarsia.parallel import snapshot_of
from intarsia.versions.authorization import Allowed
from intarsia.versions.repository import explain_errors, is_repository
from intarsia.versions.version import Version, resolve_store


class IntarsiaBackendEntrypoint(BackendEntrypoint):
    """Opens the logical and plain arrays of a group as one lazy dataset.

    >>> import xarray as xr, intarsia
    >>> store = {}
    >>> array = intarsia.create(
    ...     store, "t", shape=(0,), chunks=(2,), dtype="i4", dimension_names=["time"])
    >>> array.append([1, 2, 3], codecs=["gzip"])
    >>> array.append([4], codecs=["zstd"])
    >>> xr.open_dataset(store, engine="intarsia")["t"].sum().item()
    10
    """

    description: ClassVar[str] = "Open logical arrays, and the Zarr arrays beside them, with intarsia"
    url: ClassVar[str] = "https://github.com/intarsia-dev/intarsia"
    supports_groups: ClassVar[bool] = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """True for Icechunk objects and local repositories; directories of plain Zarr are left to zarr."""
        if isinstance(filename_or_obj, str | os.PathLike):
            return is_repository(filename_or_obj)
        kinds = (LogicalArray, icechunk.IcechunkStore, icechunk.Repository, icechunk.Session)
        return isinstance(filename_or_obj, kinds)

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
        as_of: datetime.datetime | str | None = None,
        nulls: NullsChoice | None = None,
        layer: int | None = None,
        authorize: Allowed = None,
        storage_options: Mapping[str, Any] | None = None,
        concat_dim: str | Sequence[str] | None = None,
        combine: str | None = None,
        ingest_options: Mapping[str, Any] | None = None,
    ) -> xr.Dataset:
        """Open one group as a dataset; a logical array brings the coordinates beside it.

        Files that are not in a repository yet, NetCDF or anything else that `intarsia.ingest` takes, are
        opened as one dataset: give a glob, a list, or with `concat_dim` a file or a directory. They are
        ingested into a repository in a cache directory (`INTARSIA_CACHE` says where). Later calls add new
        files, update changed ones and drop those that are gone. Values are read from the files when needed.
        `concat_dim` names the dimensions that grow from file to file; by default the coordinates tell.
        `group` is then the group inside every file, and `ingest_options` holds other options of
        `intarsia.ingest`.

        A repository, or a file of references, may refer to chunks in files elsewhere. `authorize` says which
        of them may be read: `True` for all that it names, or some URL prefixes. `storage_options` says how to
        reach the repository and these files. Both are as in `intarsia.open_repository`.

        For a repository, `branch`, `tag`, `snapshot_id` or `as_of` choose the version. `nulls` says what the
        nulls of nullable arrays become: "nan" (or NaT), "masked" (a boolean variable NAME_missing beside each
        array), or "raise"; by default NaN or NaT if the data type has one, and an error otherwise. `layer`
        reads arrays from that layer if they have it, and cuts them into its blocks. It has to be given,
        because xarray does not pass on `chunks`.
        """
        opened = _open(
            filename_or_obj,
            group,
            version=Version(branch, tag, snapshot_id, as_of),
            authorize=authorize,
            storage_options=storage_options,
            files={"concat_dim": concat_dim, "combine": combine} | dict(ingest_options or {}),
        )
        dropped = [drop_variables] if isinstance(drop_variables, str) else drop_variables or ()
        dataset = StoreBackendEntrypoint().open_dataset(
            GroupStore(opened, frozenset(dropped), nulls, layer),
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )
        dataset.set_close(None)  # otherwise it would carry the group along
        return dataset

    def open_groups_as_dict(
        self, filename_or_obj: Any, *, group: str | None = None, **options: Any
    ) -> dict[str, xr.Dataset]:
        """Open every group of the hierarchy as a dataset; logical arrays are variables, not groups.

        Takes the options of `open_dataset`.
        """

        def pop(*names: str) -> dict[str, Any]:
            return {name: options.pop(name) for name in names if name in options}

        root = _open(
            filename_or_obj,
            group,
            version=Version(**pop("branch", "tag", "snapshot_id", "as_of")),
            files=pop("concat_dim", "combine") | dict(options.pop("ingest_options", None) or {}),
            every_group=True,
            **pop("authorize", "storage_options"),
        )
        return {
            "/" + below.path.removeprefix(root.path).lstrip("/"): self.open_dataset(below, **options)
            for below in groups_below(root)
            if below is root or not (is_logical(below) or below.basename == LEDGER)
        }

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> xr.DataTree:
        """Open every group of the hierarchy as a node of a tree."""
        return xr.DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **options))


def _open(
    source: Any,
    group: str | None,
    *,
    version: Version,
    authorize: Allowed = None,
    storage_options: Mapping[str, Any] | None = None,
    files: Mapping[str, Any],
    every_group: bool = False,
) -> zarr.Group:
    """The stored group to read, or that of files, which are ingested with the options `files`."""
    options = {name: value for name, value in files.items() if value is not None}
    if not are_files(source, has_options=bool(options)):
        return _group(source, group, version, authorize, storage_options)
    if isinstance(source, str | os.PathLike) and is_repository(source):
        raise TypeError(f"{source} is a repository, but concat_dim, combine and ingest_options are for files")
    if version.is_explicit:
        raise TypeError("branch, tag, snapshot_id and as_of are for repositories, but these are files")
    if "concat_dim" not in options:
        options = {"combine": "by_coords"} | options
    inside = group or ("*" if every_group else None)
    options |= {"source_group": inside} if inside else {}
    options |= {} if authorize is None else {"authorize": authorize}
    from intarsia.archives.cache import open_archive  # with everything that ingests

    repo, path = open_archive(source, options, storage_options)
    return _group(repo, path, Version())


def are_files(source: Any, *, has_options: bool) -> bool:
    """Whether `source` is files, not a store: a list, a glob, or anything opened with options of `ingest`.

    >>> are_files(["a.nc", "b.nc"], has_options=False), are_files("store", has_options=False)
    (True, False)
    """
    if isinstance(source, list | tuple):
        return True
    if not isinstance(source, str | os.PathLike):
        return False
    text = os.fspath(source)
    return has_options or bool(WILDCARDS.search(text) and not os.path.exists(text))


def _group(
    source: Any,
    path: str | None,
    version: Version,
    authorize: Allowed = None,
    storage_options: Mapping[str, Any] | None = None,
) -> zarr.Group:
    """The group at a path, for reading, in anything that people pass to xarray."""
    if isinstance(source, LogicalArray) and not path and not (authorize or storage_options):
        return source.group
    resolved = resolve_store(source, version, authorize, storage_options)
    store, path = resolved.store, (path or "").strip("/")
    try:
        with explain_errors(resolved.repo):
            try:
                return open_group(store, path, "r")
            except FileNotFoundError:
                return open_group(store, path, "r", zarr_format=2)
    except (ContainsArrayError, FileNotFoundError) as error:
        place = f"{path or '/'!r} of {place_text(store)}"
        if isinstance(error, FileNotFoundError):
            what = f"there is no Zarr group at {place}{why_missing(store, error)}"
            raise MissingGroupError(what) from error
        raise NotLogicalArrayError(
            f"there is an array at {place}, not a group.\n"
            "  intarsia.reader reads it; intarsia.convert makes it a logical array"
        ) from error


def _register_tokens() -> None:
    """Tell dask, if it is installed, how to name repositories, sessions and their stores.

    xarray names the blocks of a dataset after its source. To dask, a repository that was opened twice is one
    object, although there may have been a commit in between, and two arrays of one name would be mixed up.
    So different versions get different names.
    """
    try:
        from dask.base import normalize_token
    except ImportError:
        return
    normalize_token.register((icechunk.Repository, icechunk.Session, icechunk.IcechunkStore), version_token)


def version_token(source: icechunk.Repository | icechunk.Session | icechunk.IcechunkStore) -> tuple[Any, ...]:
    """Every branch of a repository and the snapshot it points to, or the one snapshot of a session.

    It is something unique if values may still change.

    >>> repo = icechunk.Repository.create(icechunk.in_memory_storage())
    >>> version_token(repo) == version_token(repo)
    True
    >>> version_token(repo.readonly_session("main")) == version_token(repo.readonly_session("main").store)
    True
    """
    if isinstance(source, icechunk.Repository):
        tips = [(branch, source.lookup_branch(branch)) for branch in sorted(source.list_branches())]
        return "icechunk", str(source.storage), tips
    store = source.store if isinstance(source, icechunk.Session) else source
    return "icechunk", snapshot_of(store) or uuid.uuid4().hex


_register_tokens()


@dataclass(frozen=True, eq=False)
class GroupStore(AbstractDataStore):
    """What xarray asks a backend for: the variables of one group, not decoded, and its attributes.

    A group that is itself a logical array is a dataset of that array and the coordinates beside it.
    """

    group: zarr.Group

    dropped: frozenset[str] = frozenset()
    """Names of arrays to leave out."""

    nulls: NullsChoice | None = None
    """What the nulls of nullable arrays become."""

    layer: int | None = None
    """The layer to read arrays from that have it."""

    def get_variables(self) -> dict[str, Variable]:
        """Every array of the group by name."""
        is_array = is_logical(self.group)
        children = _with_coordinates(self.group) if is_array else dict(sorted(self.group.members()))
        variables: dict[str, Variable] = {}
        for name, child in children.items():
            if name in self.dropped:
                continue
            if isinstance(child, zarr.Array):
                variables |= variables_of(Reader.of(child), name, self.nulls)
            elif is_logical(child):
                array = LogicalArray(LogicalArrayHandle.load(child))
                if self.layer in array.manifest.layers:
                    array = array.with_config(layer=self.layer)
                variables |= variables_of(array, name, self.nulls)
        return variables

    def get_attrs(self) -> dict[str, Any]:
        """The dataset's own attributes; those of a logical array are its variable's."""
        if is_logical(self.group):
            return {}
        hidden = UNLIMITED_KEY, "_nc"  # the second is NCZarr's; xarray's own engine hides it too
        attributes = self.group.attrs.asdict().items()
        return with_floats({key: value for key, value in attributes if not key.lower().startswith(hidden)})

    def get_encoding(self) -> dict[str, Any]:
        """The dimensions that grow, if they were recorded."""
        unlimited: Any = self.group.attrs.get(UNLIMITED_KEY)
        return {} if unlimited is None else {"unlimited_dims": set(unlimited)}


def _with_coordinates(group: zarr.Group) -> dict[str, Any]:
    """A logical array, and the arrays beside it that its dimensions or attributes name."""
    parent, _, name = group.path.rpartition("/")
    array = LogicalArray(LogicalArrayHandle.load(group))
    arrays: dict[str, Any] = {variable_name(group.path): group}
    if not name:
        return arrays
    others = [dim for dim in array.dimension_names or () if dim is not None]
    others += str(array.attrs.get("coordinates", "")).split()
    for other in dict.fromkeys(others):
        if other != name and "/" not in other:
            try:
                arrays[other] = zarr.open(
                    group.store, path=f"{parent}/{other}".strip("/"), mode="r", zarr_format=3
                )
            except FileNotFoundError:
                continue
    return arrays


def variable_name(path: str) -> str:
    """The name of the variable at a path: its last segment.

    >>> variable_name("ocean/temperature"), variable_name("")
    ('temperature', 'array')
    """
    return path.rpartition("/")[2] or "array"
