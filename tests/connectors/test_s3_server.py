"""What tests find in their S3 server is their own."""

import pytest

from tests.connectors.s3_server import BUCKET, S3Server

pytestmark = [pytest.mark.services]


def test_each_server_begins_with_an_empty_bucket() -> None:
    for _ in range(2):
        with S3Server() as server:
            assert server.names("left") == []
            server.client.put_object(Bucket=BUCKET, Key="left/by the last one", Body=b"")
            assert server.names("left") == ["by the last one"]
