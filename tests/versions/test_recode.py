"""Writing values and recoding from several processes: no acknowledged write is ever invisible."""

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import intarsia
from intarsia.versions.append_recode import Upload
from tests.versions import places
from tests.versions.places import memory
from tests.versions.processes import running, together


def make(repo, size=8, chunks=2):
    with intarsia.transaction(repo, message="create") as tx:
        array = tx.create("t", shape=(0,), chunks=(chunks,), dtype="int64")
        array.append(np.zeros(size, "int64"), codecs=["gzip"])


def values(repo):
    return intarsia.open(repo, "t")[...].tolist()


@pytest.fixture
def encodings(monkeypatch):
    """Counts how often a box is encoded."""
    made = []
    plain = Upload.copy

    def count(*arguments):
        made.append(plain(*arguments))
        return made[-1]

    monkeypatch.setattr(Upload, "copy", count)
    return made


def test_write_reaches_the_member_that_is_current(meddle):
    repo = memory()
    make(repo)
    meddle(lambda: intarsia.recode(repo, "t", [(0, 4)], codecs=["zstd"]))
    intarsia.write(repo, "t", slice(1, 3), [8, 9])
    assert values(repo) == [0, 8, 9, 0, 0, 0, 0, 0]


def test_write_to_another_part_of_one_chunk_keeps_both(meddle):
    repo = memory()
    make(repo)
    meddle(lambda: intarsia.write(repo, "t", 0, 7))
    intarsia.write(repo, "t", 1, 8)
    assert values(repo)[:2] == [7, 8]


def test_write_across_regions_must_be_allowed():
    repo = memory()
    make(repo)
    intarsia.append(repo, "t", np.zeros(2, "int64"), codecs=["zstd"])
    with pytest.raises(intarsia.errors.CrossRegionWriteError):
        intarsia.write(repo, "t", slice(7, 9), 1)
    intarsia.write(repo, "t", slice(7, 9), 1, cross_region_writes=True)
    assert values(repo)[7:9] == [1, 1]


def test_recode_takes_in_what_was_written_meanwhile(meddle, encodings):
    repo = memory()
    make(repo)
    meddle(lambda: intarsia.write(repo, "t", 1, 5))
    intarsia.recode(repo, "t", [(0, 4)], codecs=["zstd"])
    assert values(repo)[1] == 5
    assert [region.codec_names for region in intarsia.open(repo, "t").regions] == ["zstd", "gzip"]
    assert len(encodings) == 2


@pytest.fixture
def during_upload(monkeypatch):
    """Run something after the next boxes were encoded, before they are attached."""

    def install(*interruptions):
        waiting = list(interruptions)
        plain = Upload.copy

        def interrupted(*arguments):
            made = plain(*arguments)
            if waiting:
                waiting.pop(0)()
            return made

        monkeypatch.setattr(Upload, "copy", interrupted)

    return install


def test_a_box_that_was_written_after_it_was_read_is_encoded_again(encodings, during_upload):
    repo = memory()
    make(repo)
    during_upload(lambda: intarsia.write(repo, "t", 1, 5))
    intarsia.recode(repo, "t", [(0, 4)], codecs=["zstd"])
    assert values(repo)[1] == 5
    assert len(encodings) == 2


def test_writes_and_appends_elsewhere_do_not_encode_again(encodings, during_upload):
    repo = memory()
    make(repo)

    def elsewhere():
        intarsia.write(repo, "t", 6, 5)
        intarsia.append(repo, "t", [1, 2], codecs=["gzip"])
        intarsia.append(repo, "t", [3, 4], codecs=["crc32c"])

    during_upload(elsewhere)
    intarsia.recode(repo, "t", [(0, 4)], codecs=["zstd"])
    assert values(repo) == [0, 0, 0, 0, 0, 0, 5, 0, 1, 2, 3, 4]
    assert len(encodings) == 1


def test_writes_on_both_sides_of_the_box_do_not_encode_again(encodings, during_upload):
    repo = memory()
    make(repo)

    def on_both_sides():
        with intarsia.transaction(repo) as tx:
            tx.open("t")[np.array([0, 7])] = 5

    during_upload(on_both_sides)
    intarsia.recode(repo, "t", [(2, 6)], codecs=["zstd"])
    assert values(repo) == [5, 0, 0, 0, 0, 0, 0, 5]
    assert len(encodings) == 1


def test_a_box_that_was_recoded_meanwhile_is_encoded_again(encodings, during_upload):
    repo = memory()
    make(repo)
    during_upload(lambda: intarsia.recode(repo, "t", [(2, 6)], codecs=["crc32c"]))
    intarsia.recode(repo, "t", [(0, 4)], codecs=["zstd"])
    assert len(encodings) == 3
    array = intarsia.open(repo, "t")
    assert [array.region_at((i,)).codec_names for i in (0, 3, 4, 6)] == ["zstd", "zstd", "crc32c", "gzip"]


def test_a_partial_last_chunk_that_others_fill_is_recoded_with_what_they_wrote(during_upload):
    repo = memory()
    make(repo, size=7)
    during_upload(lambda: intarsia.append(repo, "t", [9, 9, 9]))
    intarsia.recode(repo, "t", [(4, 7)], codecs=["zstd"])
    assert values(repo) == [0] * 7 + [9, 9, 9]
    assert intarsia.open(repo, "t").region_at((7,)).codec_names == "zstd"


def with_a_hole(repo):
    """Four values and a hole after them, in one layout and no other."""
    with intarsia.transaction(repo, message="create") as tx:
        array = tx.create("t", shape=(8,), chunks=(4,), dtype="int64", fill_value=-1)
        array.add_region([(0, 4)], codecs=["gzip"], data=[1, 2, 3, 4])


def test_a_region_that_came_back_into_a_hole_is_recoded_with_the_rest(during_upload):
    repo = memory()
    with_a_hole(repo)
    with intarsia.transaction(repo, message="full") as tx:
        tx.open("t").add_region([(4, 8)], codecs=["gzip"], data=[5, 6, 7, 8])
    intarsia.recode(repo, "t", codecs=[])  # one member for both
    full = repo.lookup_branch("main")
    intarsia.retry(repo, lambda tx: tx.open("t").drop_region([(4, 8)]), message="a mistake")
    during_upload(lambda: intarsia.restore(repo, "t", full))
    intarsia.recode(repo, "t", [(0, 8)], codecs=["zstd"])
    assert values(repo) == list(range(1, 9))


def test_what_was_appended_in_place_of_a_hole_is_recoded_with_the_rest(during_upload):
    repo = memory()
    with_a_hole(repo)

    def no_hole_any_more():
        intarsia.retry(repo, lambda tx: tx.open("t").resize((4,)))
        intarsia.append(repo, "t", [5, 6, 7, 8])

    during_upload(no_hole_any_more)
    intarsia.recode(repo, "t", [(0, 8)], codecs=["zstd"])
    assert values(repo) == list(range(1, 9))


def test_recode_begins_again_after_the_branch_was_reset(during_upload):
    repo = memory()
    make(repo)
    first = repo.lookup_branch("main")
    intarsia.write(repo, "t", 0, 5)
    during_upload(lambda: repo.reset_branch("main", first))
    intarsia.recode(repo, "t", codecs=["zstd"])
    assert values(repo) == [0] * 8


def test_an_array_made_anew_is_recoded_as_it_is_now(during_upload):
    repo = memory()
    make(repo)

    def anew():
        with repo.transaction("main", message="anew") as store:
            array = intarsia.create(store, "t", shape=(0,), chunks=(2,), dtype="int64", overwrite=True)
            array.append(np.arange(8), codecs=["gzip"])

    during_upload(anew)
    intarsia.recode(repo, "t", codecs=["zstd"])
    assert values(repo) == list(range(8))


def test_recode_gives_up_after_the_attempts_it_was_given(during_upload):
    repo = memory()
    make(repo)
    during_upload(*[lambda i=i: intarsia.write(repo, "t", 0, i + 1) for i in range(3)])
    with pytest.raises(intarsia.errors.ConcurrentUpdateError, match="others were faster in 3 attempts"):
        intarsia.recode(repo, "t", codecs=["zstd"], backoff=intarsia.types.Backoff(3, 0.0))
    assert values(repo)[0] == 3


# Several processes


def keep_writing(place, index, count):
    """Write, and look every time whether what was acknowledged is there."""
    repo = place.open()
    for i in range(1, count + 1):
        intarsia.write(repo, "t", index, i)
        seen = int(intarsia.open(repo, "t")[index])
        assert seen == i, f"{i} was acknowledged, but {seen} is there"
    return count


def keep_recoding(place, count):
    repo = place.open()
    for i in range(count):
        bounds = [(0, 8), (0, 4), (2, 6), (4, 8)][i % 4]
        intarsia.recode(repo, "t", [bounds], codecs=[["zstd"], ["gzip"], [], ["crc32c"]][i % 4])
    return count


def write_and_recode(place, count):
    repo = place.open(create=True)
    make(repo)
    jobs = [(place, index, count) for index in (0, 1, 5)]
    with running(keep_recoding, place, count) as recoder:
        together(keep_writing, jobs)
        recoder.result()
    final = values(repo)
    assert [final[i] for i in (0, 1, 5)] == [count] * 3
    assert intarsia.verify(repo) == ()


def test_writers_and_a_recoder_on_one_region_lose_nothing(tmp_path):
    write_and_recode(places.Place(str(tmp_path / "r")), 4)


@pytest.mark.torture
@pytest.mark.parametrize("kind", places.KINDS)
def test_writers_and_a_recoder_on_one_region_lose_nothing_in_the_long_run(kind, request, tmp_path):
    write_and_recode(places.place(kind, request, tmp_path), 40)


def test_threads_of_one_process_lose_nothing(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    make(repo)
    failures = []

    def count_up(index):
        try:
            for _ in range(3):
                intarsia.retry(repo, lambda tx: _increment(tx, index))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=count_up, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert values(repo)[:2] == [6, 6]


def _increment(tx, index):
    array = tx.open("t")
    array[index] = array[index] + 1


def keep_counting(place, worker, count):
    """Plain transactions on an array that others write, too; those that are refused are made again."""
    repo, refused = place.open(), 0
    for i in range(1, count + 1):
        while True:
            try:
                with intarsia.transaction(repo, message=f"{worker}: {i}") as tx:
                    array = tx.open("t")
                    array[0] = array[0] + 1  # one chunk for all
                    array[worker] = i  # and one of its own
            except intarsia.errors.ConcurrentUpdateError:
                refused += 1
            else:
                break
    return refused


def test_plain_transactions_of_several_processes_are_kept_or_refused(tmp_path):
    place = places.Place(str(tmp_path / "r"))
    repo = place.open(create=True)
    make(repo, chunks=1)
    together(keep_counting, [(place, worker, 4) for worker in (1, 2, 3)])
    assert values(repo)[:4] == [12, 4, 4, 4]
    messages = [snapshot.message for snapshot in repo.ancestry(branch="main")]
    assert len(messages) == len(set(messages)) == 12 + 2


def length(encoded):
    return b"LEN%05d" % len(encoded)


def test_workers_of_an_executor_recode_with_the_options_of_the_call(tmp_path):
    repo = intarsia.open_repository(tmp_path / "r", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("x", shape=(0, 64), chunks=(8, 64), dtype="u2").append(np.ones((16, 64), "u2"), codecs=[])
    pad = intarsia.codecs.PadCodec(location="start", nbytes=8, padding_func=length)
    codec = intarsia.codecs.ConditionalCodec(codecs=["zstd"])
    nobody = intarsia.codecs.PadCodec(location="start", nbytes=8, padding_func=lambda encoded: b"")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(intarsia.errors.CodecConfigurationError, match="cannot be pickled"):
            intarsia.recode(repo, "x", codecs=[codec, nobody], client=pool)
        with zarr.config.set({"intarsia.decision": "always_apply"}):  # of this process alone
            intarsia.recode(repo, "x", codecs=[codec, pad], client=pool)
    (member,) = intarsia.open(repo, "x").members.values()
    assert intarsia.codecs.masks(member).all()
    key = f"{member.path}/c/0/0"
    assert sync(member.store.get(key, default_buffer_prototype())).to_bytes()[:3] == b"LEN"


def test_a_write_brings_what_decides_and_how_to_cast():
    repo = intarsia.open_repository("memory://", create=True)
    with intarsia.transaction(repo, message="create") as tx:
        array = tx.create("t", shape=(0,), chunks=(100,), dtype="u1")
        array.append(np.ones(200, "u1"), codecs=[intarsia.codecs.ConditionalCodec(codecs=["zstd"])])
    intarsia.write(repo, "t", slice(0, 100), np.full(100, 7, "u1"), decision="always_apply")
    (member,) = intarsia.open(repo, "t").members.values()
    assert intarsia.codecs.masks(member).tolist() == [1, 0]
    with pytest.raises(intarsia.errors.DataTypeError):
        intarsia.write(repo, "t", slice(0, 100), np.full(100, 7.5))
    intarsia.write(repo, "t", slice(0, 100), np.full(100, 7.5), casting="unsafe")
    with pytest.raises(intarsia.errors.DataTypeError):
        intarsia.append(repo, "t", np.full(100, 7.5))
    intarsia.append(repo, "t", np.full(100, 7.5), casting="unsafe")
    assert intarsia.open(repo, "t")[...].tolist() == [7] * 100 + [1] * 100 + [7] * 100
