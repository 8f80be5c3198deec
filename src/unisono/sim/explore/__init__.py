"""Every interleaving of small cases, of orders alone and of whole view changes."""
