"""Running functions in other processes, all at once, and getting what they return."""

import contextlib
import multiprocessing
import traceback

# All tests share it: a process has one fork server, whatever contexts it makes. Icechunk starts threads when
# it is imported, which a fork would lose. The rest may be there already, also what ingest imports on first
# use: that takes a process longer than the ingest of a small file.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        *("numpy", "zarr", "zarr_indexing", "pandas", "xarray", "dask.array", "virtualizarr"),
        *("h5py", "hdf5plugin", "netCDF4", "imagecodecs"),
    ]
)

SECONDS = 300


def _call(pipe, function, arguments):
    try:
        pipe.send(("returned", function(*arguments)))
    except BaseException:
        pipe.send(("raised", traceback.format_exc()))


class Worker:
    """A process that calls one function."""

    def __init__(self, function, *arguments):
        self._end, other = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_call, args=(other, function, arguments), daemon=True)
        self.process.start()
        other.close()

    def result(self):
        """What the function returned; fails if it raised, or takes too long."""
        if not self._end.poll(SECONDS):
            raise TimeoutError(f"no answer within {SECONDS} seconds")
        kind, value = self._end.recv()
        self.process.join()
        assert kind == "returned", value
        return value

    def kill(self):
        self.process.kill()
        self.process.join()


@contextlib.contextmanager
def running(function, *arguments):
    """A worker that is gone afterwards, whatever happens."""
    worker = Worker(function, *arguments)
    try:
        yield worker
    finally:
        worker.kill()


def together(function, argument_lists):
    """Call a function in as many processes as there are argument lists; returns what each returned."""
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(running(function, *arguments)) for arguments in argument_lists]
        return [worker.result() for worker in workers]
