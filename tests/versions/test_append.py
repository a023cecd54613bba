"""Appending to a repository: once, whoever else appends, and without uploading twice."""

import gc

import icechunk
import numpy as np
import pytest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import intarsia
from intarsia.versions.append_recode import Upload
from tests.versions import places
from tests.versions.places import create, memory
from tests.versions.processes import CONTEXT, running, together


def rows(*numbers):
    return np.repeat(np.array(numbers, dtype="int32")[:, None], 4, axis=1)


def first_column(repo, path="a"):
    return intarsia.open(repo, path)[:, 0].tolist()


@pytest.fixture
def uploads(monkeypatch):
    """Counts how often data is uploaded apart from the manifest."""
    made = []
    plain = Upload.append

    def count(*arguments):
        made.append(plain(*arguments))
        return made[-1]

    monkeypatch.setattr(Upload, "append", count)
    return made


@pytest.fixture
def manifest_reads(monkeypatch):
    """The reads of the group's zarr.json, which holds the manifest."""
    made, plain = [], icechunk.IcechunkStore.get

    async def count(self, key, *arguments, **options):
        if key == "a/zarr.json":
            made.append(key)
        return await plain(self, key, *arguments, **options)

    monkeypatch.setattr(icechunk.IcechunkStore, "get", count)
    return made


# zarr looks at the group once more for every array that it makes there: the parent might be an array.
@pytest.mark.parametrize(("codecs", "members"), [(["gzip"], 0), (["zstd"], 1)])
@pytest.mark.parametrize("chunk", [1, 4])
def test_an_append_that_nobody_disturbs_reads_the_manifest_once(manifest_reads, codecs, members, chunk):
    repo = memory()
    create(repo, chunks=(chunk, 4))
    intarsia.append(repo, "a", rows(0, 1, 2), codecs=["gzip"])
    manifest_reads.clear()
    intarsia.append(repo, "a", rows(3, 4, 5), codecs=codecs)
    assert len(manifest_reads) == 1 + members
    assert first_column(repo) == list(range(6))


def test_an_append_that_is_disturbed_reads_the_manifest_once_more(manifest_reads, meddle):
    repo = memory()
    create(repo)
    meddle(lambda: (_plain_append(repo, 0), manifest_reads.clear()))
    intarsia.append(repo, "a", rows(1), codecs=["gzip"])
    assert len(manifest_reads) == 1
    assert first_column(repo) == [0, 1]


def test_it_returns_the_snapshot_of_its_commit():
    repo = memory()
    create(repo)
    snapshot = intarsia.append(repo, "a", rows(1, 2), codecs=["gzip"], message="two", metadata={"x": 1})
    assert snapshot == repo.lookup_branch("main")
    entry = intarsia.history(repo, "a")[0]
    assert (entry.snapshot_id, entry.message, entry.metadata) == (snapshot, "two", {"x": 1})


def test_daily_appends_are_one_member():
    repo = memory()
    create(repo)
    for day in range(40):
        intarsia.append(repo, "a", rows(day), codecs=["gzip"])
    array = intarsia.open(repo, "a")
    assert len(array.members) == len(array.regions) == 1
    assert first_column(repo) == list(range(40))


@pytest.mark.torture
def test_a_year_of_daily_appends_is_one_member():
    repo = memory()
    create(repo)
    for day in range(365):
        intarsia.append(repo, "a", rows(day), codecs=["gzip"])
    assert len(intarsia.open(repo, "a").members) == 1
    assert first_column(repo) == list(range(365))


def test_another_encoding_is_another_member():
    repo = memory()
    create(repo)
    intarsia.append(repo, "a", rows(1), codecs=["gzip"])
    intarsia.append(repo, "a", rows(2), codecs=["zstd"])
    intarsia.append(repo, "a", rows(3))  # like the one before
    assert [region.codec_names for region in intarsia.open(repo, "a").regions] == ["gzip", "zstd"]


def test_automatic_codecs_are_chosen_by_the_data():
    repo = memory()
    create(repo)
    intarsia.append(repo, "a", rows(*range(50)), codecs="auto")
    assert first_column(repo) == list(range(50))


def test_appending_nothing_is_no_commit():
    repo = memory()
    tip = create(repo)
    assert intarsia.append(repo, "a", np.zeros((0, 4), "int32")) == tip


def test_a_location_is_as_good_as_a_repository(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    create(repo)
    intarsia.append(tmp_path / "r", "a", rows(1), codecs=["gzip"])
    intarsia.append(f"file://{tmp_path}/r", "a", rows(2), codecs=["gzip"])
    assert first_column(repo) == [1, 2]


def test_what_cannot_be_appended_is_refused_before_anything_is_uploaded(uploads):
    repo = memory()
    tip = create(repo)
    with pytest.raises(intarsia.errors.ShapeError):
        intarsia.append(repo, "a", np.zeros((1, 5), "int32"))
    with pytest.raises(intarsia.errors.DataTypeError):
        intarsia.append(repo, "a", np.zeros((1, 4), "float64"))
    with pytest.raises(intarsia.errors.BoundsError):
        intarsia.append(repo, "a", rows(1), axis=2)
    with pytest.raises(intarsia.errors.NotLogicalArrayError, match=r"tx\.create"):
        intarsia.append(repo, "nowhere", rows(1))
    assert repo.lookup_branch("main") == tip
    assert not uploads


def test_growth_that_meets_another_append_becomes_a_region_of_its_own(meddle, uploads):
    repo = memory()
    create(repo)
    intarsia.append(repo, "a", rows(1), codecs=["gzip"])
    uploads.clear()
    meddle(lambda: intarsia.append(repo, "a", rows(2)))
    intarsia.append(repo, "a", rows(3))
    assert first_column(repo) == [1, 2, 3]
    assert len(intarsia.open(repo, "a").regions) == 2
    assert len(uploads) == 1


def test_growth_goes_over_others_writes_of_values(meddle):
    repo = memory()
    create(repo)
    intarsia.append(repo, "a", rows(1), codecs=["gzip"])
    meddle(lambda: intarsia.write(repo, "a", (0, 3), 9))
    intarsia.append(repo, "a", rows(2))
    array = intarsia.open(repo, "a")
    assert array[...].tolist() == [[1, 1, 1, 9], [2, 2, 2, 2]]
    assert len(array.regions) == 1


def test_retries_upload_nothing_again(meddle, uploads):
    repo = memory()
    create(repo)
    uploads.clear()
    meddle(*[lambda i=i: _plain_append(repo, i) for i in range(4)])
    intarsia.append(repo, "a", rows(77, 78), codecs=["zstd"], backoff=intarsia.types.Backoff(first_wait=0.0))
    assert sorted(first_column(repo)) == [0, 1, 2, 3, 77, 78]
    assert len(uploads) == 1


def _plain_append(repo, number):
    with repo.transaction("main", message=f"other {number}") as store:
        intarsia.open(store, "a", mode="r+").append(rows(number), codecs=["gzip"])


def test_partial_chunks_are_filled_first_whoever_comes_between(meddle, uploads):
    repo = memory()
    create(repo, chunks=(4, 4))
    intarsia.append(repo, "a", rows(0, 1, 2), codecs=["gzip"])  # 3 of 4 rows of the first chunk
    uploads.clear()
    meddle(lambda: intarsia.append(repo, "a", rows(3, 4, 5, 6), codecs=["crc32c"]))
    intarsia.append(repo, "a", rows(7, 8, 9, 10, 11), codecs=["zstd"])
    assert first_column(repo) == list(range(12))
    assert len(uploads) == 2  # one for each: the partial chunk is as full as before, so both fit as they are


def test_data_that_no_longer_lies_on_the_lattice_is_uploaded_again(meddle, uploads):
    repo = memory()
    create(repo, chunks=(4, 4))
    intarsia.append(repo, "a", rows(0, 1, 2), codecs=["gzip"])
    uploads.clear()
    meddle(lambda: intarsia.append(repo, "a", rows(3, 4), codecs=["crc32c"]))
    intarsia.append(repo, "a", rows(5, 6, 7, 8, 9, 10), codecs=["zstd"])
    assert first_column(repo) == list(range(11))
    assert len(uploads) == 3


def test_data_that_only_fills_the_partial_chunk_needs_no_member():
    repo = memory()
    create(repo, chunks=(4, 4))
    intarsia.append(repo, "a", rows(0, 1), codecs=["gzip"])
    intarsia.append(repo, "a", rows(2), codecs=["zstd"])
    array = intarsia.open(repo, "a")
    assert first_column(repo) == [0, 1, 2]
    assert len(array.members) == 1


def test_an_array_that_was_made_anew_meanwhile_gets_the_data_not_an_orphan(meddle, uploads):
    repo = memory()
    create(repo)
    intarsia.append(repo, "a", rows(1), codecs=["gzip"])
    uploads.clear()
    meddle(lambda: _make_anew(repo))
    intarsia.append(repo, "a", rows(2), codecs=["zstd"])
    assert first_column(repo) == [2]
    assert len(uploads) == 2
    array = intarsia.open(repo, "a")
    assert {name for name, _ in array.group.members()} == set(array.manifest.members)


def _make_anew(repo):
    with repo.transaction("main", message="anew") as store:
        intarsia.create(store, "a", shape=(0, 4), chunks=(1, 4), dtype="int32", overwrite=True)


def test_an_array_that_is_gone_meanwhile_is_an_error(meddle):
    repo = memory()
    create(repo)

    def remove():
        with repo.transaction("main", message="remove") as store:
            import zarr

            del zarr.open_group(store)["a"]

    meddle(remove)
    with pytest.raises(intarsia.errors.NotLogicalArrayError):
        intarsia.append(repo, "a", rows(1), codecs=["gzip"])


def test_it_gives_up_after_the_attempts_it_was_given(meddle):
    repo = memory()
    create(repo)
    meddle(*[lambda i=i: _plain_append(repo, i) for i in range(3)])
    with pytest.raises(intarsia.errors.ConcurrentUpdateError, match="others were faster in 3 attempts"):
        intarsia.append(repo, "a", rows(9), codecs=["zstd"], backoff=intarsia.types.Backoff(3, 0.0))
    assert first_column(repo) == [0, 1, 2]


def test_appends_along_another_axis(meddle):
    repo = memory()
    create(repo, shape=(2, 0), chunks=(2, 3))
    intarsia.append(repo, "a", np.arange(6).reshape(2, 3), axis=1, codecs=["gzip"])
    meddle(lambda: intarsia.append(repo, "a", np.arange(6, 12).reshape(2, 3), axis=1, codecs=["zstd"]))
    intarsia.append(repo, "a", np.arange(12, 18).reshape(2, 3), axis=-1, codecs=["gzip"])
    expected = np.concatenate([np.arange(k, k + 6).reshape(2, 3) for k in (0, 6, 12)], axis=1)
    np.testing.assert_array_equal(intarsia.open(repo, "a")[...], expected)


# Several processes


def append_numbers(place, worker, count, merge):
    repo = place.open()
    done = []
    for i in range(count):
        number = 1000 * (worker + 1) + i
        done.append((number, intarsia.append(repo, "a", rows(number), merge=merge)))
    return done


def keep_reading(place, stop):
    """Look at the array until told to stop: it only grows, and every row is whole."""
    repo, seen = place.open(), []
    while not stop.is_set():
        array = intarsia.open(repo, "a")
        numbers = array[:, 0].tolist()
        assert (array[...] == array[:, :1]).all()
        assert numbers[: len(seen)] == seen
        assert len(numbers) == len(set(numbers)) == array.shape[0]
        seen = numbers
    return len(seen)


def append_beside_a_reader(place, workers, count, *, merge):
    create(place.open(create=True))
    stop = CONTEXT.Event()
    with running(keep_reading, place, stop) as reader:
        done = together(append_numbers, [(place, worker, count, merge) for worker in range(workers)])
        stop.set()
        reader.result()
    check_appends(place, done, workers, count)


def check_appends(place, done, workers, count):
    repo = place.open()
    array = intarsia.open(repo, "a")
    expected = {1000 * (worker + 1) + i for worker in range(workers) for i in range(count)}
    numbers = array[:, 0].tolist()
    assert len(numbers) == len(set(numbers)) == workers * count
    assert set(numbers) == expected
    assert (array[...] == array[:, :1]).all()
    acknowledged = [number for part in done for number, _ in part]
    assert sorted(acknowledged) == sorted(expected)
    at = {entry.snapshot_id: entry for entry in intarsia.history(repo, "a")}
    for part in done:
        order = [numbers.index(number) for number, _ in part]
        assert order == sorted(order)  # each worker's own order is kept
        assert all(snapshot in at for _, snapshot in part)
    assert intarsia.verify(repo) == ()


@pytest.mark.parametrize("kind", places.KINDS)
def test_four_processes_append_at_once(kind, request, tmp_path):
    place = places.place(kind, request, tmp_path)
    append_beside_a_reader(place, 4, 3, merge=False)
    assert len(intarsia.open(place.open(), "a").regions) == 12


@pytest.mark.torture
@pytest.mark.parametrize("kind", places.KINDS)
def test_four_processes_append_fifty_times_each(kind, request, tmp_path):
    place = places.place(kind, request, tmp_path)
    append_beside_a_reader(place, 4, 50, merge=False)
    assert len(intarsia.open(place.open(), "a").regions) == 200


def stored_chunks(repo):
    """The encoded bytes of every chunk, in the order of the rows that they hold."""
    array = intarsia.open(repo, "a")
    found = {}
    for region in array.regions:
        for i in range(region.shape[0]):
            key = f"a/{region.name}/c/{region.member_start[0] + i}/0"
            found[region.bounds[0][0] + i] = _get(array.store, key)
    return [found[row] for row in sorted(found)]


def _get(store, key):
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync

    return sync(store.get(key, default_buffer_prototype())).to_bytes()


def check_consolidation(place, workers, count):
    repo = place.open()
    before, chunks = intarsia.open(repo, "a")[...], stored_chunks(repo)
    assert len(chunks) == workers * count
    intarsia.retry(repo, lambda tx: tx.open("a").consolidate(), message="join")
    array = intarsia.open(repo, "a")
    assert len(array.members) == len(array.regions) == 1
    assert stored_chunks(repo) == chunks
    np.testing.assert_array_equal(array[...], before)


def test_contending_appends_become_one_member_by_consolidation(tmp_path):
    place = places.Place(str(tmp_path / "r"))
    append_beside_a_reader(place, 4, 4, merge=True)
    check_consolidation(place, 4, 4)


@pytest.mark.torture
@pytest.mark.parametrize("kind", places.KINDS)
def test_fifty_contending_appends_each_become_one_member_by_consolidation(kind, request, tmp_path):
    place = places.place(kind, request, tmp_path)
    append_beside_a_reader(place, 4, 50, merge=True)
    check_consolidation(place, 4, 50)


def length(encoded):
    return b"LEN%05d" % len(encoded)


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("rows", [8, 6])
def test_every_append_writes_with_its_own_options(merge, rows, tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("x", shape=(0, 64), chunks=(8, 64), dtype="u2")
    pad = intarsia.codecs.PadCodec(location="start", nbytes=8, padding_func=length)
    for decision in ("always_apply", "compress_if_smaller", "always_apply"):
        codec = intarsia.codecs.ConditionalCodec(codecs=["zstd"], decision=decision)
        intarsia.append(repo, "x", np.full((rows, 64), 7, "u2"), codecs=[codec, pad], merge=merge)
    array = intarsia.open(repo, "x")
    for member in array.members.values():
        assert intarsia.codecs.masks(member).all()
        for i in range(member.cdata_shape[0]):
            key = f"{member.path}/{member.metadata.encode_chunk_key((i, 0))}"
            assert sync(member.store.get(key, default_buffer_prototype())).to_bytes()[:3] == b"LEN"
    assert (array[...] == 7).all()
    with pytest.raises(intarsia.errors.ChunkEncodeError, match="with_padding"):
        intarsia.append(repo, "x", np.full((8, 64), 7, "u2"))
    assert intarsia.open(repo, "x").shape == (3 * rows, 64)


def test_a_remembered_decision_is_that_of_later_appends(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        array = tx.create("x", shape=(0, 64), chunks=(8, 64), dtype="u2")
        intarsia.codecs.with_decision(array, "compress_if_smaller", remember=True)
        array.append(np.full((4, 64), 7), codecs=[intarsia.codecs.ConditionalCodec(codecs=["zstd"])])
    for merge in (True, False):
        intarsia.append(repo, "x", np.full((8, 64), 7), merge=merge)
    intarsia.write(repo, "x", slice(0, 4), 8)
    assert all(intarsia.codecs.masks(member).all() for member in intarsia.open(repo, "x").members.values())


def test_one_codec_alone_is_a_list_of_one():
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("a", shape=(0,), chunks=(4,), dtype="f4")
    intarsia.append(repo, "a", np.ones(8), codecs="gzip")
    assert intarsia.open(repo, "a").regions[0].codec_names == "gzip"
    intarsia.recode(repo, "a", codecs={"name": "zstd"})
    assert intarsia.open(repo, "a").regions[0].codec_names == "zstd"


@pytest.mark.parametrize("texts", [["a", "bcd"] * 4, np.array(["a", "bcd"] * 4)], ids=["list", "U3"])
def test_codecs_are_chosen_for_values_of_the_arrays_type(texts):
    """NumPy's texts of one width are stored with their own lengths: shuffling them by width would fail."""
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("a", shape=(0,), chunks=(4,), dtype="string").append(texts, codecs="auto")
    intarsia.append(repo, "a", texts, codecs="auto", merge=False)
    array = intarsia.open(repo, "a")
    assert array[...].tolist() == ["a", "bcd"] * 8
    assert {region.codec_names.split("+")[0] for region in array.regions} == {"vlen-utf8"}


def test_appends_leave_nothing_behind_in_the_process():
    repo = memory()
    create(repo)

    def kept_after(number):
        for i in range(number):
            intarsia.append(repo, "a", rows(i), codecs=["gzip"], merge=i % 2 == 0)
        gc.collect()
        kinds = (type(each) for each in gc.get_objects())
        names = (f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
        return sorted(name for name in names if name.startswith(("intarsia.", "icechunk.", "zarr.")))

    few = kept_after(3)
    assert kept_after(9) == few
