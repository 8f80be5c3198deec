"""Names for groups without a server (paper 002, section 2): the protocol, its node on UDP, and `unisono directory`."""
