"""The sans-IO heart: types, contract, codec and member. Standard library only; no clock, no I/O, no logging."""
