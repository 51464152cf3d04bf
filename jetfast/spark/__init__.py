"""Jobs on the executors of a Spark session. Importing this does not import pyspark."""

from jetfast.spark.cluster import SparkCluster

__all__ = ["SparkCluster"]
