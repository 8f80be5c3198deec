"""How packets, datagrams and control messages look on the wire."""
