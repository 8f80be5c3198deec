"""What can go wrong, divided by whose mistake it is."""


class UnisonoError(Exception):
    """The root of everything that unisono raises on purpose. Its text is one sentence for a person."""


class Misuse(UnisonoError):
    """The caller asked for something that cannot be: the sentence says what, and what to do instead."""


class ConfigError(Misuse):
    """A setting is outside what the protocol allows."""


class NotPrimary(UnisonoError):
    """The view is not the primary one, so it is read-only: nothing was cast. The caller did not cause it, and it may pass."""


class Shed(UnisonoError):
    """The group's policy is `shed`, and a message was refused because a receiver is slow. Nothing of it remains: try later."""


class PeerFault(UnisonoError):
    """Another member, or the network, sent something that no correct member sends."""


class Contradiction(PeerFault):
    """What several members sent cannot all be true, and which of them lied cannot be told."""
