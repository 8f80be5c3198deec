"""The properties of PROPERTIES as Spark formulations, one a file: `violations(tables)` returns the violations, with witnesses."""
