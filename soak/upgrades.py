"""Upgrades: what this version and older ones wrote opens, grows, is changed and verified.

Manifests of versions 1 and 2, side by side, show the same.
"""

import shutil
from pathlib import Path

import numpy as np
import zarr
from tests.fixtures.make_written import NULLS, VALUES

import intarsia
from intarsia import nullable
from soak.damage.chunks import quiet
from soak.target import Target, Wrong

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures"
ARCHIVES = sorted(FIXTURES.glob("written-*.zip"))
PACKING = intarsia.Packing("int16", scale=0.5, values="float32")


def same(found, expected, what):
    if not np.array_equal(np.ma.getdata(found), np.ma.getdata(expected)):
        raise Wrong(f"{what}: other values")


def checked(target, what):
    problems = [p for p in intarsia.verify(target) if p.kind != "leftover"]
    if problems:
        raise Wrong(f"{what}: verify finds {problems[:3]}")


def logical_array(place, rng):
    """An array in a directory: it is read, appended to, recoded and joined, in any order."""
    array = intarsia.open(str(place / "plain"), "a", mode="r+")
    same(array[...], VALUES, "an array")
    expected = VALUES
    for _ in range(rng.randint(1, 4)):
        expected = changed(array, expected, rng)
        same(intarsia.open(str(place / "plain"), "a")[...], expected, "an array that was changed")
    checked(array, "an array")


def changed(array, expected, rng):
    rows = rng.choice((1, 2, 3))
    kind = rng.randrange(5)
    if kind == 0:
        more = np.full((rows, 20), rng.randrange(1000), dtype="f4")
        array.append(more, codecs=rng.choice((["zstd"], ["gzip"], [])))
        return np.concatenate([expected, more])
    if kind == 1:
        array.recode([(0, 3), (0, 20)], codecs=["zstd"])
    elif kind == 2:
        array.consolidate()
    elif kind == 3:
        array.resize((array.shape[0] + rows, 20))
        return np.concatenate([expected, np.zeros((rows, 20), "f4")])
    else:
        start = -(-array.shape[0] // 3) * 3
        array.resize((start + 3, 20))
        more = np.full((3, 20), 2.5, dtype="f4")
        array.add_region(
            [(start, start + 3), (0, 20)], codecs=["zstd"], data=more, packing=PACKING
        )  # version 2
        if array.manifest.version != 2:
            raise Wrong("a packing is in a manifest of version 1")
        return np.concatenate([expected, np.zeros((start - len(expected), 20), "f4"), more])
    return expected


def repository(place, rng):
    """A repository: it is read, appended to by a transaction and beside others, and restored."""
    repo = intarsia.open_repository(place / "repository")
    same(intarsia.open(repo, "a")[...], VALUES, "a repository")
    first = repo.lookup_branch("main")
    more = np.full((3, 20), rng.randrange(1000), dtype="f4")
    intarsia.append(repo, "a", more, codecs=rng.choice((["zstd"], ["gzip"])))
    if rng.random() < 0.5:
        intarsia.retry(repo, lambda tx: tx.open("a").consolidate())
    same(intarsia.open(repo, "a")[...], np.concatenate([VALUES, more]), "a repository that grew")
    same(intarsia.open(repo, "a", snapshot_id=first)[...], VALUES, "an earlier version")
    intarsia.restore(repo, "a", first)
    same(intarsia.open(repo, "a")[...], VALUES, "a repository that was restored")
    checked(repo, "a repository")


def single_arrays(place, rng):
    """Nullable data, slots and conditional chunks."""
    found = nullable.open_array(str(place / "nullable"), mode="r")[...]
    if not np.array_equal(found.mask, NULLS.mask):
        raise Wrong("other nulls")
    same(found.compressed(), NULLS.compressed(), "nullable data")
    z = zarr.open_array(str(place / "slots"), mode="r+")
    slots = intarsia.shards.slotted(z)
    same(slots[...], np.arange(256), "slots")
    chunk = rng.randrange(4)
    slots[64 * chunk : 64 * chunk + 64] = 7
    intarsia.shards.compact(z)
    expected = np.arange(256)
    expected[64 * chunk : 64 * chunk + 64] = 7
    same(intarsia.reader(z)[...], expected, "slots that were compacted")
    same(intarsia.reader(str(place / "conditional"))[...], VALUES, "conditional chunks")
    intarsia.codecs.rewrite(zarr.open_array(str(place / "conditional"), mode="r+"), "compress_if_smaller")
    same(intarsia.reader(str(place / "conditional"))[...], VALUES, "conditional chunks that were rewritten")


PARTS = (logical_array, repository, single_arrays)


def side_by_side(place, rng):
    """One array in manifests of both versions: the second packs values that fit its packing."""
    old = intarsia.create(str(place / "one"), "a", shape=(12, 20), chunks=(3, 10), dtype="f4")
    new = intarsia.create(str(place / "two"), "a", shape=(12, 20), chunks=(3, 10), dtype="f4")
    values = (VALUES % 100).astype("f4")
    for start in rng.sample(range(0, 12, 3), 4):
        bounds = [(start, start + 3), (0, 20)]
        old.add_region(bounds, codecs=["zstd"], data=values[start : start + 3])
        new.add_region(bounds, codecs=["zstd"], data=values[start : start + 3], packing=PACKING)
    if (old.manifest.version, new.manifest.version) != (1, 2):
        raise Wrong(f"versions {old.manifest.version} and {new.manifest.version}")
    y, x = sorted(rng.sample(range(13), 2)), sorted(rng.sample(range(21), 2))
    window = (slice(*y, rng.choice((1, 2))), slice(*x))
    same(old[window], values[window], "version 1")
    same(new[window], values[window], "version 2")


@quiet
def prepare(folder, _seed):
    def case(number, rng):
        place = folder / "place"
        shutil.rmtree(place, ignore_errors=True)
        archive = ARCHIVES[number % len(ARCHIVES)]
        part = (*PARTS, side_by_side)[number // len(ARCHIVES) % (len(PARTS) + 1)]
        shutil.unpack_archive(archive, place)
        part(place, rng)
        return part.__name__.replace("_", " ")

    return case


TARGETS = [
    Target("upgrades", "archives of this version and of older ones", prepare, memory=None, stretch=500)
]
