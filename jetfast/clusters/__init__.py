"""Where members live: `local` (this process), `processes` (several on this host). `jetfast.spark` is another."""

from jetfast.clusters.local import LocalCluster
from jetfast.clusters.processes import ProcessCluster
from jetfast.clusters.submission import Cluster

__all__ = ["Cluster", "LocalCluster", "ProcessCluster"]
