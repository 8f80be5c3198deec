"""Reliable messages between two parties over datagrams (paper 001): the link, and the program `unisono ptp`."""
