"""Benchmarks, one module each: `./dev bench NAME`."""
