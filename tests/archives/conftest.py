"""An S3 server with a bucket, for the tests of ingest."""

import obstore
import pytest

from tests import servers

BUCKET = "archive"


@pytest.fixture(scope="session")
def s3(moto_server):
    """How obstore reaches an S3 server of our own, which has the bucket `archive`."""
    moto_server.client().create_bucket(Bucket=BUCKET)
    return {
        "endpoint": moto_server.endpoint,
        "region": "us-east-1",
        "access_key_id": servers.KEY,
        "secret_access_key": servers.SECRET,
        "client_options": {"allow_http": True},
    }


@pytest.fixture
def bucket(s3):
    """The bucket as a store, empty."""
    store = obstore.store.S3Store(BUCKET, **s3)
    for batch in obstore.list(store):
        obstore.delete(store, [meta["path"] for meta in batch])
    return store
