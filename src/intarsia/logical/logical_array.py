"""`LogicalArray`: one array made of several real Zarr arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import zarr

from intarsia.casting import Casting
from intarsia.engine.accessors import Accessors
from intarsia.engine.config import DEFAULT_CONFIG, LogicalConfig
from intarsia.engine.request import Request
from intarsia.engine.stored_array import StoredArray
from intarsia.errors import BoundsError, ShapeError
from intarsia.logical.attributes import Attributes
from intarsia.logical.logical_array_handle import LogicalArrayHandle
from intarsia.logical.members import Members
from intarsia.logical.region import Region, Regions
from intarsia.manifest.box import BoundsLike, Box
from intarsia.manifest.data_types import as_values
from intarsia.manifest.packing import Packing
from intarsia.manifest.packing_columns import PackingChoice, choose_packing, parse_packing
from intarsia.manifest.view import View
from intarsia.parallel import Client
from intarsia.progress import Progress, silent

if TYPE_CHECKING:
    from intarsia.codecs import CodecLike
    from intarsia.engine.array_handle import ReplicaFallback
    from intarsia.logical.explain import ArrayInfo
    from intarsia.manifest.manifest import Manifest


OF_EACH_REGION = ("codecs", "compressors", "filters", "metadata", "serializer", "shards")
"""What a Zarr array has, and a logical array has for each region."""


class LogicalArray(Accessors, StoredArray):
    """One array assembled from several Zarr arrays, each with its own codecs.

    Make one with `intarsia.create` or `intarsia.open`. Reading is eager; `lazy` defers it. You can select as
    in zarr, between brackets and in `oindex` and `vindex`, and also with negative steps. A handle keeps the
    layout that it was opened with until you change the layout through it, or until it finds a member gone
    because somebody else changed it. `refresh` looks for such changes at once.

    >>> import numpy as np, intarsia
    >>> array = intarsia.create({}, "a", shape=(0, 3), chunks=(2, 3), dtype="int32")
    >>> array.append(np.arange(12).reshape(4, 3), codecs=["gzip"])
    >>> array.append(np.arange(12, 18).reshape(2, 3), codecs=["zstd"])
    >>> array[3:5, 1]
    array([10, 13], dtype=int32)
    >>> [region.bounds for region in array.regions]
    [((0, 4), (0, 3)), ((4, 6), (0, 3))]
    """

    def __init__(self, logical: LogicalArrayHandle, config: LogicalConfig = DEFAULT_CONFIG) -> None:
        super().__init__(logical, config)
        self._logical = logical

    # What it is

    @property
    def chunks(self) -> tuple[int, ...]:
        """The logical chunk shape: the lattice that regions align to."""
        return self._logical.manifest.chunk_shape

    @property
    def nchunks(self) -> int:
        """The number of logical chunks, as in zarr; members may have larger or smaller ones."""
        return prod(self._logical.manifest.lattice)

    @property
    def generation(self) -> int:
        """How many times the layout has changed."""
        return self._logical.manifest.generation

    @property
    def attrs(self) -> Attributes:
        """The user's attributes."""
        return Attributes(self._logical)

    @property
    def group(self) -> zarr.Group:
        """The Zarr group that holds the manifest and the members."""
        return self._logical.group

    @property
    def read_only(self) -> bool:
        """Whether this handle refuses writes."""
        return self._logical.read_only

    @property
    def members(self) -> Members:
        """The backing Zarr arrays by name, each opened on demand."""
        return self._logical.members

    @property
    def regions(self) -> Regions:
        """Every region of layer 0, by position: a tuple that prints itself as a table."""
        order = self._logical.manifest.regions.in_order()
        return Regions(Region.of(self._logical, i) for i in order.tolist())

    @property
    def replicas(self) -> tuple[Region, ...]:
        """The regions of all layers but layer 0: data that is stored a second time, in another layout.

        >>> import numpy as np, intarsia
        >>> array = intarsia.create({}, "a", shape=(0, 4), chunks=(1, 4), dtype="i2")
        >>> array.append(np.arange(16).reshape(4, 4))
        >>> array.add_replica(chunks=(4, 1))
        1
        >>> [(replica.layer, replica.bounds, replica.chunks) for replica in array.replicas]
        [(1, ((0, 4), (0, 4)), (4, 1))]
        """
        first, manifest = len(self.manifest.regions), self.manifest
        return tuple(Region.of(self._logical, first + i) for i in range(len(manifest.replicas)))

    @property
    def fallbacks(self) -> tuple[ReplicaFallback, ...]:
        """Regions that failed and were read from another layer instead; see `with_config(fallback=True)`.

        Handles made with `with_config` share them.
        """
        return tuple(self._logical.fallbacks.values())

    @property
    def policy(self) -> dict[str, Any]:
        """What the array should look like, according to `set_policy` and `add_replica`."""
        from intarsia.logical.replicas import Policy

        return Policy.of(self._logical).to_json()

    def region_at(self, index: Sequence[int]) -> Region | None:
        """The region that covers the element at `index`, or None for a hole."""
        point = tuple(int(i) for i in index)
        if len(point) != self.ndim or any(not -n <= i < n for i, n in zip(point, self.shape, strict=True)):
            raise BoundsError(f"the index {tuple(index)} is out of bounds for an array of shape {self.shape}")
        cell = tuple(i % n // c for i, n, c in zip(point, self.shape, self.chunks, strict=True))
        rows = self._logical.manifest.regions.touching(Box(cell, tuple(i + 1 for i in cell)))
        return Region.of(self._logical, int(rows[0])) if rows.size else None

    if not TYPE_CHECKING:  # otherwise a type checker would accept any name as an attribute

        def __getattr__(self, name: str) -> Any:
            if name not in OF_EACH_REGION:
                return super().__getattr__(name)
            raise AttributeError(
                f"a logical array has no {name!r}: each region has its own.\n"
                "  Use array.regions[i].codecs, or array.regions[i].member.metadata"
            )

    # Writing

    def write_request(self, request: Request, value: Any) -> None:
        """Write `value` to `request`, a selection that is already resolved."""
        from intarsia.engine.write import write_request

        write_request(self._logical, self._config, request, value)

    def append(
        self,
        data: Any,
        axis: int | str = 0,
        *,
        codecs: Iterable[CodecLike] | Literal["auto"] | None = None,
        chunks: tuple[int, ...] | None = None,
        shards: tuple[int, ...] | None = None,
        packing: PackingChoice = None,
        merge: bool = True,
        casting: Casting | None = None,
    ) -> None:
        """Add data after the end of an axis, in a new region with its own codecs.

        A partial last chunk is filled in its own member first. If the previous region has the same codecs and
        chunks, it grows instead (`merge=False` keeps them apart). Without codecs, the data is encoded like
        the previous region (if one of them is packed, by those of its codecs that fit any data type);
        `codecs="auto"` tries some and takes what suits the data. Values that the array's data type would
        change are refused, unless `casting="unsafe"` (see `with_config`).

        If the previous region is packed, it takes data that its packing can hold up to the rounding of
        floats; other data becomes a region of plain values. `packing="keep"` packs all data like the previous
        region, and rounds it; `packing=…` packs it as in `add_region`. Values that cannot be held are
        refused.

        Args:
            data: The data to add. A DataArray is transposed to the dimensions of the array.
            axis: The axis that grows, as a number or a dimension name.
            chunks: The chunk shape of a new member. Without codecs, chunks and shards, it is that of the
                previous region; otherwise it is that of the lattice by default.
            shards: The shape of the shards, a whole number of chunks along each axis.
        """
        from intarsia.logical.append import AppendPlan
        from intarsia.logical.encoding import Encoding, choose_codecs

        self._logical.begin_edit()
        values = as_values(self.manifest, data, casting or self._config.casting, all_axes=True)
        packed = choose_packing(self.manifest, packing)
        chosen = choose_codecs(codecs, values, packing=packed.get("packing"))
        encoding = Encoding(chosen, chunks, shards, options=self._config.options, **packed)
        plan = AppendPlan.of(self._logical, values.shape, axis, encoding, values).with_open_end()
        reservation = (plan.reserve_growth() if merge else None) or plan.reserve()
        with reservation.shown_when_filled():
            reservation.fill(lambda source: values[source.slices])

    def add_region(
        self,
        bounds: BoundsLike,
        *,
        codecs: Iterable[CodecLike] | Literal["auto"] | None = None,
        data: Any = None,
        chunks: tuple[int, ...] | None = None,
        shards: tuple[int, ...] | None = None,
        fill_value: Any = None,
        member: str | None = None,
        member_start: tuple[int, ...] | None = None,
        packing: Packing | Mapping[str, Any] | None = None,
        view: View | Mapping[str, Any] | None = None,
        casting: Casting | None = None,
    ) -> None:
        """Back a free, aligned box by a new member, or by the array `member` that is already in the group.

        `bounds` holds (start, stop) in elements for every axis, or slices: `np.s_[0:500, :]`. Data that the
        array's data type would change is refused, unless `casting="unsafe"` (see `with_config`).

        With a `packing`, the member holds packed numbers: the packed data, or the numbers in an existing
        array. It is a `Packing`, or the arguments of one; its values have the array's data type unless you
        say otherwise. Values that it cannot hold are refused.

        Args:
            codecs: The codecs of the new member. `"auto"` tries some and takes what suits the data; None
                leaves the choice to zarr.
            data: The data to write into it; without data, it reads as the fill value.
            chunks: The chunk shape of the new member; by default that of the lattice.
            shards: The shape of the shards, a whole number of chunks along each axis; by default there are
                none.
            fill_value: What chunks of the new member read as before they are written; by default the fill
                value of the array.

        >>> import numpy as np, intarsia
        >>> array = intarsia.create({}, "a", shape=(4, 3), chunks=(2, 3), dtype="float32")
        >>> packed = {"stored": "int16", "scale": 0.5, "missing": -1}
        >>> array.add_region(((0, 2), (0, 3)), codecs=["gzip"], data=np.ones((2, 3)), packing=packed)
        >>> array.members[array.regions[0].name][0].tolist()
        [2, 2, 2]

        A `view` says how the array sees an existing one whose axes have another order or direction, or that
        has more or fewer axes of length 1 (see `intarsia.View`). `member_start` says where the box starts in
        the existing array, or in the view of it, in elements.

        >>> values = np.arange(6, dtype="float32").reshape(3, 2)
        >>> upside_down = array.group.create_array("lat-lon", data=values)
        >>> view = intarsia.View.identity(2).transpose(1, 0).flip(1, length=3)
        >>> array.add_region(((2, 4), (0, 3)), member="lat-lon", view=view)
        >>> array[2:].tolist()
        [[4.0, 2.0, 0.0], [5.0, 3.0, 1.0]]
        """
        from intarsia.logical.edit import add_existing_member, add_region
        from intarsia.logical.encoding import Encoding, choose_codecs

        self._logical.begin_edit()
        own = parse_packing(self.manifest, packing)
        if member is not None:
            add_existing_member(self._logical, bounds, member, member_start, own, view)
            return
        if view is not None:
            raise ShapeError("a view says how to look at an existing array: give member=… as well")
        rule = casting or self._config.casting
        values = None if data is None else as_values(self.manifest, data, rule, all_axes=True)
        chosen = choose_codecs(codecs, values, packing=own)
        encoding = Encoding(chosen, chunks, shards, fill_value, self._config.options, own)
        add_region(self._logical, bounds, encoding, values)

    def recode(
        self,
        bounds: BoundsLike | None = None,
        *,
        codecs: Iterable[CodecLike] | Literal["auto"] | None,
        chunks: tuple[int, ...] | None = None,
        shards: tuple[int, ...] | None = None,
        packing: PackingChoice = "keep",
        client: Client | None = None,
        progress: Progress = silent,
    ) -> None:
        """Encode an aligned box (by default everything) again: same values, and one new member for the box.

        `bounds` holds (start, stop) in elements for every axis, or slices: `np.s_[0:500, :]`.

        Packed regions stay packed, each in its own way, if all of the box is packed and stores one data type;
        otherwise values are stored. `packing=None` unpacks them; `packing=…` packs them as in `add_region`:
        it rounds values, and refuses those that cannot be held.

        [Storing data again](../../explanation/storing-again.md) compares it with other operations.

        Args:
            codecs: The codecs of the new member. `"auto"` tries some and takes what suits the data; None
                leaves the choice to zarr.
            chunks: The chunk shape of the new member. Without chunks and shards, both stay as they are;
                if regions in the box differ, those of the largest one are taken.
            shards: The shape of the shards, a whole number of chunks along each axis. With chunks but without
                shards, there are none.
            progress: A function that is called with the number of steps done and the total, see
                `intarsia.types.Progress`. Steps are chunks or shards; with a client, they are tasks.

        >>> import intarsia
        >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="float32")
        >>> array.add_region([(0, 4)], data=[0, 1, 2, 3], packing={"stored": "uint8", "scale": 0.5})
        >>> array.recode(codecs=["zstd"])
        >>> str(array.regions[0].packing)
        'uint8 * 0.5'
        >>> array.recode(codecs=["zstd"], packing=None)
        >>> array.regions[0].packing is None
        True

        With a `client` (a `dask.distributed.Client`, or an executor of `concurrent.futures` that does not
        fork), its workers do the work; in an Icechunk session they do so through forks, which are merged into
        it.
        """
        from intarsia.logical.recode import recode, recode_encoding
        from intarsia.logical.staging import lattice_box

        box = lattice_box(self.manifest, bounds)
        encoding = recode_encoding(self, box, codecs, chunks, shards, packing)
        recode(self._logical, box, encoding, client=client, progress=progress)

    def as_stored(self, bounds: BoundsLike) -> LogicalArray:
        """The numbers that members store in the aligned box `bounds`, to choose codecs for them.

        Read only from this box. Unless all of the box is packed in one data type, this is the array itself.

        >>> import intarsia
        >>> array = intarsia.create({}, "a", shape=(4,), chunks=(2,), dtype="float32")
        >>> array.add_region([(0, 4)], data=[0, 1, 2, 3], packing={"stored": "uint8", "scale": 0.5})
        >>> array.as_stored([(0, 4)])[...]
        array([0, 2, 4, 6], dtype=uint8)
        """
        from intarsia.logical.recode import as_stored
        from intarsia.logical.staging import lattice_box

        numbers = as_stored(self._logical, lattice_box(self.manifest, bounds))
        return self if numbers is None else LogicalArray(numbers, self._config)

    def drop_region(self, bounds: BoundsLike) -> None:
        """Make the aligned box `bounds` a hole; regions that it cuts are cropped."""
        from intarsia.logical.edit import drop_region

        drop_region(self._logical, bounds)

    def resize(self, shape: Sequence[int]) -> None:
        """Give the array another `shape`: what is cut off is gone, and new parts are holes."""
        from intarsia.logical.edit import resize

        resize(self._logical, shape, self._config.options)

    def consolidate(self) -> int:
        """Join neighbouring regions of equal encoding into one member; returns how many regions are gone.

        Encoded chunks are copied as they are, so this is fast and changes no value.
        [Storing data again](../../explanation/storing-again.md) compares it with other operations.
        """
        from intarsia.logical.edit import consolidate

        return consolidate(self._logical)

    def add_replica(
        self,
        bounds: BoundsLike | None = None,
        *,
        chunks: tuple[int, ...] | None = None,
        codecs: Iterable[CodecLike] | Literal["auto"] | None = None,
        shards: tuple[int, ...] | None = None,
        packing: Literal["keep"] | None = "keep",
        layer: int | None = None,
        client: Client | None = None,
        progress: Progress = silent,
    ) -> int:
        """Store an aligned box (by default everything) a second time, in another layout; returns its layer.

        Every read then takes each part from the layer that costs least. A replica holds the same values:
        codecs that would change any are refused. A write cuts what it changes out of the replicas, unless
        `with_config(replicas="write")` is set; `refresh_replicas` restores it. A replica of everything also
        covers data appended later, as soon as `refresh_replicas` or `intarsia.maintain` runs.

        Args:
            bounds: The box: (start, stop) in elements for every axis, or slices such as `np.s_[0:500, :]`. It
                must be aligned to the lattice. By default it is the whole array.
            chunks: The chunk shape of the new member; by default that of the lattice.
            codecs: The codecs of the new member. `"auto"` tries some and takes what suits the data; None
                leaves the choice to zarr.
            shards: The shape of the shards, a whole number of chunks along each axis; by default there are
                none.
            packing: `"keep"` keeps packed regions packed; None stores their values.
            layer: The number of the layer. By default it is the layer with the same encoding, or a new one.
            client: A `dask.distributed.Client`, or an executor of `concurrent.futures` that does not fork,
                whose workers do the work. By default, threads of this process do it.
            progress: A function that is called with the number of steps done and the total, see
                `intarsia.types.Progress`.

        >>> import numpy as np, intarsia
        >>> array = intarsia.create({}, "a", shape=(0, 4), chunks=(1, 4), dtype="i2")
        >>> array.append(np.arange(16).reshape(4, 4), codecs=["zstd"])
        >>> array.add_replica(chunks=(4, 1), codecs=["zstd"])
        1
        >>> intarsia.explain(array, np.s_[:, 2]).parts[0].layer
        1
        >>> array[0, 0] = 7
        >>> [replica.bounds for replica in array.replicas]
        [((1, 4), (0, 4))]
        >>> array.refresh_replicas()
        1
        """
        from intarsia.logical.replicas import make_replica, plan_replica

        self._logical.begin_edit()
        fields = {"chunks": chunks, "codecs": codecs, "shards": shards, "packing": packing}
        replica, box = plan_replica(self, bounds, fields, layer)
        make_replica(self._logical, box, replica, client, progress)
        return replica.layer

    def drop_replica(self, bounds: BoundsLike | None = None, *, layer: int | None = None) -> None:
        """Drop a replica or an aligned box of it, by default all replicas; layer 0 stays as it is.

        Args:
            bounds: The box to drop, as (start, stop) in elements for every axis or as slices, aligned to the
                lattice.
            layer: The number of the layer to drop it from.
        """
        from intarsia.logical.replicas import drop_replica

        drop_replica(self._logical, bounds, layer)

    def refresh_replicas(self, *, client: Client | None = None, progress: Progress = silent) -> int:
        """Restore what writes have cut out of replicas, and add what was appended since.

        Returns how many boxes were made. In a repository, `intarsia.maintain` does this alongside other
        writers.

        Args:
            client: A `dask.distributed.Client`, or an executor of `concurrent.futures` that does not fork,
                whose workers do the work. By default, threads of this process do it.
            progress: A function that is called with the number of steps done and the total, see
                `intarsia.types.Progress`.
        """
        from intarsia.logical.replicas import refresh_replicas

        return refresh_replicas(self._logical, client=client, progress=progress)

    def set_policy(self, **policy: Mapping[str, Any] | None) -> None:
        """Say what the array should look like; `intarsia.maintain` brings it about, now and as it grows.

        The `policy` consists of one or both of these:
        `replica={"chunks": …, "codecs": …, "after": "30 chunks"}` asks for a replica of everything, or of a
        box if `bounds` is among the fields; appended data is added once it is that many logical chunks long.
        `recode={"codecs": …, "after": …}` asks for this encoding of regions that were written in another one;
        virtual regions stay as they are. None withdraws it.

        >>> import intarsia
        >>> array = intarsia.create({}, "a", shape=(0, 4), chunks=(1, 4), dtype="i2")
        >>> array.set_policy(replica={"chunks": (30, 1), "after": "30 chunks"}, recode={"codecs": ["zstd"]})
        >>> array.policy["replicas"][0]["after"]
        30
        """
        from intarsia.logical.replicas import set_policy

        set_policy(self._logical, policy)

    def with_config(self, **settings: Any) -> LogicalArray:
        """A new handle with other run-time `settings`, the fields of `intarsia.types.LogicalConfig`.

        `decision` and `padding` apply to data written through the handle, if a member has a codec that asks
        for them. Codecs given in a call take precedence, with their own options.

        >>> import intarsia
        >>> array = intarsia.create({}, "a", shape=(0,), chunks=(2,), dtype="int8")
        >>> array.append([1, 2])
        >>> array[0] = 2.5
        Traceback (most recent call last):
        ...
        intarsia.errors.DataTypeError: the values are float64, and int8 cannot hold them all.
          Convert them first, if that is what you mean: values.astype('int8')
        >>> array.with_config(casting="unsafe")[0] = 2.5
        """
        config = replace(self._config, **settings)
        if settings.get("layer") is not None and config.layer not in self.manifest.layers:
            known = ", ".join(map(str, self.manifest.layers))
            raise BoundsError(f"layer {config.layer}: the array has no such layer; it has {known}")
        return LogicalArray(self._logical, config)

    # What Python expects of it

    @property
    def info(self) -> ArrayInfo:
        """What there is to know about the array, for printing."""
        from intarsia.logical.explain import ArrayInfo

        return ArrayInfo.of(self)

    def _slabs(self) -> Iterator[int]:
        step, size = self.chunks[0], self.shape[0]
        return (min(step, size - start) for start in range(0, size, step))

    def _block_grid(self) -> tuple[int, ...]:
        return self.chunks

    def _repr_fields(self) -> str:
        return f"{super()._repr_fields()} chunks={self.chunks} regions={len(self.manifest.regions)}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LogicalArray):
            return NotImplemented
        same_place = self._logical.group.store_path == other._logical.group.store_path
        return same_place and self._logical.manifest == other._logical.manifest

    __ne__ = object.__ne__  # the opposite, not one for each element

    __hash__ = None  # type: ignore[assignment]  # as in zarr: equal arrays may become unequal

    def __reduce__(self) -> tuple[Any, ...]:
        # Options that only a writer needs may be functions that cannot be pickled.
        reads = self.read_only
        config = self._config.for_reading if reads else self._config
        live = {} if reads else self._logical.members.live
        default = None if reads else self._logical.default
        return _restored, (self._logical.group, self._logical.manifest, config, live, default)


def _restored(group: zarr.Group, manifest: Manifest, config: LogicalConfig, *options: Any) -> LogicalArray:
    return LogicalArray(LogicalArrayHandle(group, manifest, *options), config)
