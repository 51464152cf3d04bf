"""Where members live: `local` (this process). `jetfast.spark` is another."""

from jetfast.clusters.local import LocalCluster
from jetfast.clusters.submission import Cluster

__all__ = ["Cluster", "LocalCluster"]
