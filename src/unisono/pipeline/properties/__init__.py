"""The properties of runs that no task can hold: those of few rows by their checkers, the others as forms on Spark, one a file."""
