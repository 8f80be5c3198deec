"""Experiments: grids of simulated runs, fanned out as Spark tasks, and the papers' tables rebuilt from what they measured."""
