"""An S3 server of its own for a test run, in this process, on a free port, with one empty bucket."""

import urllib.request
from typing import Any

BUCKET = "bucket"
CREDENTIALS = {"access_key_id": "key", "secret_access_key": "secret", "region": "us-east-1"}


class S3Server:
    """Started by `with`, stopped at its end."""

    def __enter__(self) -> "S3Server":
        import boto3
        from moto.server import ThreadedMotoServer

        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        host, port = self.server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"
        self.client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=CREDENTIALS["access_key_id"],
            aws_secret_access_key=CREDENTIALS["secret_access_key"],
            region_name=CREDENTIALS["region"],
        )
        self.client.create_bucket(Bucket=BUCKET)
        return self

    def __exit__(self, *_: object) -> None:
        # All servers of a process have the same buckets: the next one would find what this one holds.
        urllib.request.urlopen(f"{self.endpoint}/moto-api/reset", data=b"").close()
        self.server.stop()

    @property
    def filesystem(self) -> Any:
        """Of pyarrow."""
        from pyarrow import fs

        return fs.S3FileSystem(
            access_key=CREDENTIALS["access_key_id"],
            secret_key=CREDENTIALS["secret_access_key"],
            region=CREDENTIALS["region"],
            endpoint_override=self.endpoint.removeprefix("http://"),
            scheme="http",
        )

    def names(self, folder: str) -> list[str]:
        """What is in a folder of the bucket, folders below it included."""
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{folder}/").get("Contents", [])
        return [item["Key"].removeprefix(f"{folder}/") for item in found if not item["Key"].endswith("/")]
