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
            chain = [BytesCodec(), intarsia.ConditionalCodec(codecs=[Crc32cCodec()], decision=decide)]
            if sharded:
                chain = [ShardingCodec(chunk_shape=(4,), codecs=chain)]
            z = zarr.create(
                store={str(tmp_path)!r} + f"/z{{sharded}}", shape=256, dtype="u1",
                chunks=16 if sharded else 4, codecs=chain,
            )
            z[:] = 7
            assert intarsia.masks(z).tolist() == [0, 1] * 32
    """)
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=300)


def test_threads_do_not_survive_a_fork_but_the_child_gets_new_ones(tmp_path):
    script = textwrap.dedent("""
        import os, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what is tested here
        import numpy as np, zarr, intarsia
        from zarr.codecs import BytesCodec, Crc32cCodec

        def write():
            codec = intarsia.ConditionalCodec(codecs=[Crc32cCodec()], decision=lambda chunk_index: True)
            z = zarr.create(store={}, shape=64, chunks=4, dtype="u1", codecs=[BytesCodec(), codec])
            z[:] = 7
            return intarsia.masks(z).tolist() == [1] * 16

        assert write()
        child = os.fork()
        if child == 0:
            os._exit(0 if write() else 1)
        assert os.waitpid(child, 0)[1] == 0
    """)
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)
