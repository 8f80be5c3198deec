"""The pipeline on Spark: it judges and measures traces of any size. It reads `trace.schema`, never the core."""
