"""Jobs on the executors of a Spark session, and pieces of jetfast inside Spark jobs. Importing this does not import
pyspark."""

from jetfast.spark.cluster import SparkCluster
from jetfast.spark.dataframes import read_dataframe, run
from jetfast.spark.registration import register
from jetfast.spark.window_aggregate import window_aggregate

__all__ = ["SparkCluster", "read_dataframe", "register", "run", "window_aggregate"]
