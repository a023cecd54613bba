"""An S3 server with a bucket, for the tests of ingest."""

import obstore
import pytest

from intarsia.versions.storage_options import for_obstore

BUCKET = "archive"


@pytest.fixture(scope="session")
def s3(moto_server):
    """The storage options of an S3 server of our own, which has the bucket `archive`."""
    moto_server.client().create_bucket(Bucket=BUCKET)
    return moto_server.options


@pytest.fixture
def bucket(s3):
    """The bucket as a store, empty."""
    store = obstore.store.S3Store(BUCKET, **for_obstore(s3, "s3"))
    for batch in obstore.list(store):
        obstore.delete(store, [meta["path"] for meta in batch])
    return store
