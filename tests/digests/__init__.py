"""Digests of whole runs, recorded once: a restructuring that changes none of them changes no behaviour."""
