"""Disks that are full, fail, turn read-only or lose power: at every system call that changes or reads files.

What is on the disk afterwards is the old state or the new one, never a third; and the change can be made
again. What is read is right, or there is an error.
"""

import errno
import shutil

import numpy as np
import xarray as xr
import zarr
from tests.archives.files import GRID, netcdf
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec

import intarsia
from intarsia.errors import IntarsiaError
from soak import shim
from soak.damage.chunks import quiet
from soak.target import Target, Wrong

ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
READ_ERRORS = (errno.EIO, errno.EACCES, errno.ESTALE)
CHECKED = (BytesCodec(), Crc32cCodec())
COLUMNS = 300


class PlainStore:
    """A logical array in a directory: an append."""

    def make(self, place):
        array = intarsia.create(str(place), "a", shape=(0, COLUMNS), chunks=(1, COLUMNS), dtype="<i4")
        array.append(np.full((2, COLUMNS), 1), codecs=["zstd"])

    def change(self, place):
        intarsia.open(str(place), "a", mode="r+").append(np.full((2, COLUMNS), 2), codecs=["gzip"])

    def state(self, place):
        return intarsia.open(str(place), "a")[:, 0].tolist()

    def reads(self, place):
        """Ways to look at it."""
        yield lambda: self.state(place)

    old, new = [1, 1], [1, 1, 2, 2]


class Repository(PlainStore):
    """A local repository: an append, with its lock and its commit."""

    def make(self, place):
        repo = intarsia.open_repository(place / "r", create=True)
        with intarsia.transaction(repo, message="create") as tx:
            array = tx.create("a", shape=(0, COLUMNS), chunks=(1, COLUMNS), dtype="<i4")
            array.append(np.full((2, COLUMNS), 1), codecs=["zstd"])

    def change(self, place):
        intarsia.append(intarsia.open_repository(place / "r"), "a", np.full((2, COLUMNS), 2), codecs=["gzip"])

    def state(self, place):
        return intarsia.open(intarsia.open_repository(place / "r"), "a")[:, 0].tolist()

    def reads(self, place):
        yield lambda: self.state(place)
        yield lambda: intarsia.history(place / "r", "a")
        yield lambda: intarsia.explain(intarsia.open(place / "r", "a"))
        yield lambda: xr.open_dataset(place / "r", engine="intarsia")["a"].values.tolist()


class Archive(Repository):
    """A repository that refers to files: one more is ingested."""

    old, new = ([1], [1]), ([1, 2], [1, 2])

    def make(self, place):
        for day in (1, 2):
            netcdf(place / f"{day}.nc", day, values=np.full((1, *GRID), day), version="NETCDF3_CLASSIC")
        intarsia.ingest(place / "1.nc", place / "r", concat_dim="time")

    def change(self, place):
        intarsia.ingest(place / "2.nc", place / "r", concat_dim="time")

    def state(self, place):
        repo = intarsia.open_repository(place / "r", authorize=True)
        return intarsia.reader(repo, "time")[...].tolist(), intarsia.open(repo, "sst")[:, 0, 0].tolist()

    def reads(self, place):
        yield lambda: self.state(place)
        yield lambda: intarsia.archives.sources(place / "r", check=False)
        yield lambda: intarsia.archives.to_kerchunk(place / "r", "", place / "k.json", authorize=True)
        yield lambda: xr.open_dataset(place / "r", engine="intarsia", authorize=True)["sst"].values.tolist()


class Slots(PlainStore):
    """A shard with slots: one chunk is written anew."""

    old, new = [1, 1, 1, 1], [1, 5, 1, 1]

    def make(self, place):
        z = zarr.create_array(
            str(place), shape=256, chunks=256, dtype="<i4", compressors=None,
            serializer=ShardingCodec(chunk_shape=(64,), codecs=CHECKED, index_codecs=CHECKED),
        )  # fmt: skip
        intarsia.shards.slotted(z, fsync=True)[...] = 1

    def change(self, place):
        intarsia.shards.slotted(zarr.open_array(str(place), mode="r+"), fsync=True)[64:128] = 5

    def state(self, place):
        slots = intarsia.shards.slotted(zarr.open_array(str(place), mode="r+"))
        return [self._value(slots[64 * i : 64 * i + 64]) for i in range(4)]

    @staticmethod
    def _value(values):
        if len(set(values.tolist())) > 1:
            raise Wrong(f"a chunk holds {np.unique(values)}")
        return int(values[0])


class Compaction(Slots):
    """A shard with slots: it is compacted, which changes no value."""

    def make(self, place):
        super().make(place)
        intarsia.shards.slotted(zarr.open_array(str(place), mode="r+"))[64:128] = 5

    def change(self, place):
        intarsia.shards.compact(zarr.open_array(str(place), mode="r+"))

    old = new = [1, 5, 1, 1]  # noqa: RUF012  # never changed


class Report(PlainStore):
    """The report page: it is there as a whole, or as it was."""

    old, new = "old", "new"

    def make(self, place):
        super().make(place / "z")
        (place / "page.html").write_text("old")

    def change(self, place):
        intarsia.write_report(str(place / "z"), file=place / "page.html")

    def state(self, place):
        text = (place / "page.html").read_text()
        if text == "old":
            return "old"
        return "new" if text.rstrip().endswith("</html>") else f"half a page of {len(text)} characters"


THINGS = {
    "a plain store": PlainStore,
    "a local repository": Repository,
    "an archive of files": Archive,
    "slots of a shard": Slots,
    "a compaction": Compaction,
    "a report": Report,
}


class Disk:
    """What the cases of one thing share: a folder as it was, and one to work in."""

    def __init__(self, thing, folder):
        self.thing = thing()
        self._before, self.place = folder / "before", folder / "work"
        self._before.mkdir()
        self.thing.make(self._before)
        self.renew()
        self.thing.state(self.place)  # once where nothing fails: what is imported late is there now
        self.thing.change(self.place)
        if self.thing.state(self.place) != self.thing.new:
            raise RuntimeError(f"the new state is {self.thing.state(self.place)}")
        self.renew()
        self.shim = shim.Shim(folder)

    def renew(self, place=None):
        place = place or self.place
        while place.exists():  # zarr may still be writing what it began before something else failed
            shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self._before, place, symlinks=True)

    def look(self, place, why):
        """The state, which must be one of two."""
        try:
            found = self.thing.state(place)
        except IntarsiaError as error:
            raise Wrong(f"{why}: neither the old nor the new state can be read: {error}") from error
        if found not in (self.thing.old, self.thing.new):
            raise Wrong(f"{why}: a third state: {found}")
        return found


def failing(thing):
    """A call fails: every case another one, in another way."""

    @quiet
    def prepare(folder, _seed):
        disk = Disk(thing, folder)
        calls = len(
            disk.shim.recorded(lambda: disk.thing.change(disk.place), folder.parent / f"{folder.name}.log")
        )

        def case(number, rng):
            disk.renew()
            fatal = number % (calls + 8) + 1
            error, lasting, shorten = rng.choice(ERRORS), rng.random() < 0.5, rng.random() < 0.25
            how = f"call {fatal}, {errno.errorcode[error]}"
            how += ", from then on" * lasting + ", half of a write" * shorten
            raised, reached = disk.shim.failing(
                lambda: disk.thing.change(disk.place), fatal, error, lasting=lasting, shorten=shorten
            )
            found = disk.look(disk.place, how)
            if raised is None and found != disk.thing.new:
                raise Wrong(f"{how}: it was acknowledged, and is not there")
            check_error(raised, how)
            if found != disk.thing.new:
                disk.thing.change(disk.place)
                if disk.thing.state(disk.place) != disk.thing.new:
                    raise Wrong(f"{how}: it cannot be made again: {disk.thing.state(disk.place)}")
            return "not reached" if not reached else "acknowledged" if raised is None else "refused"

        return case

    return prepare


def failing_reads(thing):
    """A call that reads fails, or gives half, while it is looked at or changed."""

    @quiet
    def prepare(folder, _seed):
        disk = Disk(thing, folder)
        works = [*disk.thing.reads(disk.place), lambda: disk.thing.change(disk.place)]
        right = [work() for work in works]
        disk.renew()
        calls = [disk.shim.count_reads(work) for work in works]
        disk.renew()

        def case(number, rng):
            which, found = number % len(works), []
            changes = which == len(works) - 1
            fatal = number // len(works) % (calls[which] + 8) + 1
            error, lasting, shorten = rng.choice(READ_ERRORS), rng.random() < 0.5, rng.random() < 0.25
            how = f"work {which}, read {fatal} of {calls[which]}, {errno.errorcode[error]}"
            how += ", from then on" * lasting + ", half of a read" * shorten
            raised, reached = disk.shim.failing(
                lambda: found.append(works[which]()),
                fatal,
                error,
                lasting=lasting,
                shorten=shorten,
                reading=1,
            )
            check_error(raised, how)
            if found and not changes and found[0] != right[which]:
                raise Wrong(f"{how}: {found[0]} instead of {right[which]}")
            after = disk.look(disk.place, how)
            if after == disk.thing.old != disk.thing.new and changes and raised is None:
                raise Wrong(f"{how}: it was acknowledged, and is not there")
            if changes and after != disk.thing.new:
                works[which]()
                if (after := disk.thing.state(disk.place)) != disk.thing.new:
                    raise Wrong(f"{how}: it cannot be made again: {after}")
            if changes:
                disk.renew()
            elif after != disk.thing.old:
                raise Wrong(f"{how}: reading changed it to {after}")
            return "not reached" if not reached else "right" if raised is None else "refused"

        return case

    return prepare


def check_error(raised, how):
    if raised is not None and not isinstance(raised, OSError | IntarsiaError):
        raise Wrong(f"{how}: {type(raised).__name__}: {raised}") from raised


def losing_power(thing, *, unsynced_lost):
    """A prefix of all that was done to files arrived; of what was not synced, perhaps less."""

    @quiet
    def prepare(folder, _seed):
        disk = Disk(thing, folder)
        calls = disk.shim.recorded(
            lambda: disk.thing.change(disk.place), folder.parent / f"{folder.name}.log"
        )

        def case(number, rng):
            cut = number % (len(calls) + 1)
            prefix = calls[:cut]
            if unsynced_lost:
                safe = shim.synced(prefix)
                prefix = [
                    call
                    for position, call in enumerate(prefix)
                    if call.kind not in (shim.WRITE, shim.TRUNCATE) or position in safe or rng.random() < 0.5
                ]
            after = folder / "after"
            disk.renew(after)
            shim.replay(prefix, disk.place, after)
            found = disk.look(after, f"cut after {cut} of {len(calls)} calls")
            if cut == len(calls) and found != disk.thing.new and not unsynced_lost:
                raise Wrong("all was done, and nothing is there")
            return "old state" if found == disk.thing.old else "new state"

        return case

    return prepare


COMMON = {"memory": None, "stretch": 500, "needs": shim.missing, "environment": shim.environment}
TARGETS = [
    *(
        Target("disk", f"calls that fail: {name}", failing(thing), share=3, **COMMON)
        for name, thing in THINGS.items()
    ),
    *(
        Target("disk", f"reads that fail: {name}", failing_reads(thing), share=3, **COMMON)
        for name, thing in THINGS.items()
        if name != "a report"
    ),
    *(
        Target("disk", f"power cuts: {name}", losing_power(thing, unsynced_lost=False), **COMMON)
        for name, thing in THINGS.items()
    ),
    *(
        Target(
            "disk",
            f"power cuts, unsynced writes lost: {name}",
            losing_power(thing, unsynced_lost=True),
            **COMMON,
        )
        for name, thing in THINGS.items()
        if name in ("slots of a shard", "a compaction")
    ),
]
