"""The wing for the papers: programs that exist because a document describes them.

- `ptp`        reliable datagrams between two parties (paper 001, section 2)
- `causal`     causally ordered multicast among the members of a file (paper 001, section 3)
- `by_hand`    what both share: options as printed in the paper, and questions that are answered by typing
- `directory`  names for groups without a server (paper 002, section 2)

The rest of unisono does not need the wing; only the command line registers its commands (`commands`).
"""
