"""Functions that use zarr themselves, in threads that zarr does not need."""

import subprocess
import sys
import textwrap

import pytest


@pytest.mark.parametrize("kind", ["Batched", "Fused"])
def test_decisions_that_read_other_arrays_do_not_wait_for_each_other(kind, tmp_path):
    """64 chunks, each of which reads 8 chunks of a compressed array on disk: more than zarr has threads."""
    script = textwrap.dedent(f"""
        import zarr, numpy as np, intarsia, intarsia.codecs.context
        from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec
        zarr.config.set({{"codec_pipeline.path": "intarsia.codecs.context.{kind}Pipeline"}})
        plan = zarr.create(store={str(tmp_path / "plan")!r}, shape=(64, 8), chunks=(1, 1), dtype="u1")
        plan[:] = np.arange(64).repeat(8).reshape(64, 8)

        def decide(chunk_index):
            return int(plan[chunk_index[0]].max()) % 2

        for sharded in (False, True):
            chain = [BytesCodec(), intarsia.codecs.ConditionalCodec(codecs=[Crc32cCodec()], decision=decide)]
            if sharded:
                chain = [ShardingCodec(chunk_shape=(4,), codecs=chain)]
            z = zarr.create(
                store={str(tmp_path)!r} + f"/z{{sharded}}", shape=256, dtype="u1",
                chunks=16 if sharded else 4, codecs=chain,
            )
            z[:] = 7
            assert intarsia.codecs.masks(z).tolist() == [0, 1] * 32
    """)
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=300)


def test_threads_do_not_survive_a_fork_but_the_child_gets_new_ones(tmp_path):
    script = textwrap.dedent("""
        import os, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what is tested here
        import numpy as np, zarr, intarsia
        from zarr.codecs import BytesCodec, Crc32cCodec

        def write():
            always = lambda chunk_index: True
            codec = intarsia.codecs.ConditionalCodec(codecs=[Crc32cCodec()], decision=always)
            z = zarr.create(store={}, shape=64, chunks=4, dtype="u1", codecs=[BytesCodec(), codec])
            z[:] = 7
            return intarsia.codecs.masks(z).tolist() == [1] * 16

        assert write()
        child = os.fork()
        if child == 0:
            os._exit(0 if write() else 1)
        assert os.waitpid(child, 0)[1] == 0
    """)
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


NESTED = """
    import os, sys, faulthandler
    faulthandler.dump_traceback_later(240, exit=True)
    import numpy as np, zarr, intarsia, intarsia.codecs.context
    from intarsia import nullable
    from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec
    zarr.config.set({{"codec_pipeline.path": "intarsia.codecs.context.{kind}Pipeline"}})
    CHUNKS = 2 * min(32, os.cpu_count() + 4) + 1  # more than any pool of asyncio has threads
    zarr.config.set({{"async.concurrency": CHUNKS, "codec_pipeline.max_workers": CHUNKS}})

    def made(decision, kind="plain"):
        codecs = [BytesCodec(), intarsia.codecs.ConditionalCodec(codecs=[Crc32cCodec()], decision=decision)]
        if kind == "nullable":
            found = nullable.create_array({{}}, shape=CHUNKS, chunks=1, dtype="u1", data_codecs=codecs)
            return found.zarr_array
        if kind == "sharded":
            codecs = [ShardingCodec(chunk_shape=(1,), codecs=codecs)]
        return zarr.create(store={{}}, shape=CHUNKS, chunks=CHUNKS if kind == "sharded" else 1, dtype="u1",
                           codecs=codecs)
"""


@pytest.mark.parametrize("kind", ["Batched", "Fused"])
def test_decisions_may_write_arrays_whose_decisions_write_arrays(kind):
    script = textwrap.dedent(NESTED.format(kind=kind)) + textwrap.dedent("""
        def deciding(below):
            def decide(chunk_index):
                below[chunk_index[0]] = 7
                return True
            return decide

        for outer in ("plain", "sharded", "nullable"):
            deepest = made(lambda chunk_index: False)
            middle = made(deciding(deepest))
            made(deciding(middle), outer)[:] = 7
            assert deepest[:].tolist() == middle[:].tolist() == [7] * CHUNKS
    """)
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=300)


@pytest.mark.parametrize("kind", ["Batched", "Fused"])
def test_decisions_that_ask_for_nothing_may_read_arrays_too(kind):
    """A `Decision` of somebody's own says by default that it may wait, but not that it needs the index."""
    script = textwrap.dedent(NESTED.format(kind=kind)) + textwrap.dedent("""
        other = zarr.create(store={}, shape=64, chunks=1, dtype="u1")
        other[:] = 1

        class Mine(intarsia.codecs.Decision):
            def encode(self, data, chain):
                return (1, chain.encode(0, data)) if other[:].all() else (0, data)

        z = made(Mine())
        z[:] = 7
        assert intarsia.codecs.masks(z).tolist() == [1] * CHUNKS
    """)
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=300)


@pytest.mark.parametrize("kind", ["Batched", "Fused"])
def test_whoever_waits_for_a_slot_does_not_stop_the_decision_that_holds_it(kind, tmp_path):
    script = textwrap.dedent(NESTED.format(kind=kind)) + textwrap.dedent(f"""
        import threading
        other = zarr.create(store={{}}, shape=64, chunks=1, dtype="u1")
        other[:] = 1

        class Mine(intarsia.codecs.Decision):
            def encode(self, data, chain):
                return (0, data) if other[:].all() else (1, chain.encode(0, data))

        codec = intarsia.codecs.ConditionalCodec(codecs=[Crc32cCodec()], decision=Mine())
        shards = ShardingCodec(chunk_shape=(CHUNKS,), codecs=[BytesCodec(), codec, Crc32cCodec()])
        z = zarr.create_array({str(tmp_path)!r}, shape=CHUNKS, chunks=CHUNKS, dtype="u1", compressors=None,
                              serializer=shards)
        s = intarsia.shards.slotted(z)
        s[:] = 1

        def write_a_part(i):
            for k in range(5):
                s[i] = k + s[i] * 0

        threads = [threading.Thread(target=write_a_part, args=(i,), daemon=True) for i in range(CHUNKS)]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
        assert s[:].tolist() == [4] * CHUNKS
    """)
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=300)
