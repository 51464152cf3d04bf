"""Where members live: `local` (this process), `processes` (several on this host). `jetfast.spark` is another."""

from jetfast.clusters.cluster import Cluster
from jetfast.clusters.local import LocalCluster
from jetfast.clusters.processes import ProcessCluster

__all__ = ["Cluster", "LocalCluster", "ProcessCluster"]
