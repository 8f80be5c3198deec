"""Reliable streams: what one member casts and sends reaches the others once and in order."""
