"""Settings that every test shares: hypothesis profiles, both of zarr's codec pipelines, S3 servers."""

import os
import signal

import pytest
import zarr
import zarr_http_server._serve
from hypothesis import HealthCheck, settings
from zarr.core.codec_pipeline import BatchedCodecPipeline, FusedCodecPipeline
from zarr.registry import register_pipeline

from intarsia.codecs import PackBitsCodec
from intarsia.nullable import optional_dtype
from tests import servers
from tests.logical import places

# Tests that choose a pipeline choose it after ours was switched in, as the first codec of a process does.
PackBitsCodec()
optional_dtype("int8")

# A shell that runs the tests in the background has them, and all that they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Two processes that begin to serve at the same moment may both get the port that is tried first, and only one
# of them can listen at it.
zarr_http_server._serve.DEFAULT_PORT = 0

# A busy machine is no reason to fail: processes of a dask cluster may take long to start and to answer.
for timeout in ("CONNECT", "TCP"):
    os.environ.setdefault(f"DASK_DISTRIBUTED__COMM__TIMEOUTS__{timeout}", "300s")

# A busy machine is no reason to fail: neither profile looks at the clock.
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=20, **PATIENT)
settings.register_profile("thorough", max_examples=2000, **PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """No test has an example in its text, and looking for some would import even what servers run."""
    return [each for each in (yield) if type(each) is pytest.Module]


OUR_PIPELINES = {
    "batched": "intarsia.codecs.context.BatchedPipeline",
    "fused": "intarsia.codecs.context.FusedPipeline",
}


class ZarrsBatched(BatchedCodecPipeline):
    """zarr's own under another name, which our codecs leave alone."""


class ZarrsFused(FusedCodecPipeline):
    """The same for the other one."""


register_pipeline(ZarrsBatched)
register_pipeline(ZarrsFused)
PIPELINES = OUR_PIPELINES | {
    "zarr's batched": f"{__name__}.ZarrsBatched",
    "zarr's fused": f"{__name__}.ZarrsFused",
}


@pytest.fixture(params=sorted(PIPELINES))
def pipeline(request):
    """Runs the test once with each of zarr's two codec pipelines, and once with each of ours."""
    with zarr.config.set({"codec_pipeline.path": PIPELINES[request.param]}):
        yield request.param


@pytest.fixture(params=sorted(OUR_PIPELINES))
def our_pipeline(request):
    """Runs the test once with each of our two codec pipelines, which tell codecs the chunk index."""
    with zarr.config.set({"codec_pipeline.path": OUR_PIPELINES[request.param]}):
        yield request.param


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory):
    """An S3 server in memory; takes any credentials."""
    with servers.moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def _places_know_a_server(request):
    """It starts with the first test that needs it."""
    places.s3.server = lambda: request.getfixturevalue("moto_server")


@pytest.fixture(scope="session")
def seaweedfs_server(tmp_path_factory):
    """An S3 server on disk; knows one user."""
    with servers.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server
