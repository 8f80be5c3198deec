"""The demo: real processes that are killed, paused and joined while they agree."""
