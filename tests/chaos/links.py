"""The links of a chaos run: namespaces whose faults overlap, each of which can be taken back alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.net.namespaces import Namespaces, run


@dataclass
class Fault:
    """What one fault does to the links."""

    blocked: set[tuple[str, str]] = field(default_factory=set)
    """(receiver, sender): nothing gets through."""
    loss: Mapping[str, Any] = field(default_factory=dict)
    """Per cent of what a member receives that is lost."""
    kilobit: Mapping[str, Any] = field(default_factory=dict)
    """Bandwidth of what a member sends, a second."""


class Links:
    """Rules in the namespaces, as the faults that are in force want them."""

    def __init__(self, net: Namespaces) -> None:
        self._net = net
        self._faults: dict[int, Fault] = {}
        self._rules = dict.fromkeys(net.names, "")  # what is in force
        self._kilobit: dict[str, int] = {}

    def add(self, number: int, fault: Fault) -> None:
        self._faults[number] = fault
        self._apply()

    def part(self, number: int, parts: list[str]) -> None:
        part_of = {name: part for part in parts for name in part}
        names = self._net.names
        self.add(number, Fault(blocked={(one, two) for one in names for two in names if part_of[one] != part_of[two]}))

    def undo(self, number: int) -> None:
        if self._faults.pop(number, None) is not None:
            self._apply()

    def heal(self) -> None:
        self._faults.clear()
        self._apply()

    def _apply(self) -> None:
        faults = self._faults.values()
        for name in self._net.names:
            rules = self._rules_for(name)
            if rules != self._rules[name]:
                self._rules[name] = rules
                chain = f"table inet stage {{\n chain in {{\n type filter hook input priority 0;\n{rules} }}\n}}\n"
                text = "flush ruleset\n" + (chain if rules else "")  # one transaction: no moment without rules
                run(*self._net.prefix(name), "nft", "-f", "-", text=text)
            kilobit = min((fault.kilobit[name] for fault in faults if name in fault.kilobit), default=0)
            if kilobit != self._kilobit.get(name, 0):
                self._kilobit[name] = kilobit
                if kilobit:
                    self._net.narrow(name, kilobit)
                else:
                    self._net.widen(name)

    def _rules_for(self, name: str) -> str:
        faults = self._faults.values()
        senders = sorted({sender for fault in faults for receiver, sender in fault.blocked if receiver == name})
        loss = max((fault.loss.get(name, 0) for fault in faults), default=0)
        rules = ""
        if senders:
            rules += f"  ip saddr {{ {', '.join(map(self._net.host, senders))} }} counter drop\n"
        if loss:
            rules += f"  meta l4proto udp numgen random mod 100 < {loss} counter drop\n"
        return rules
