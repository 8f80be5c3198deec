"""What the network benchmark compares unisono with: one program a peer, run by an interpreter that has the peers' packages."""
