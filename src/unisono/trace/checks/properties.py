"""All properties, each with the checker that judges it: what the judge, reports, pages and Spark take them from."""

from __future__ import annotations

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.p00_well_formed import WellFormed
from unisono.trace.checks.p01_no_creation import NoCreation
from unisono.trace.checks.p02_no_duplication import NoDuplication
from unisono.trace.checks.p03_in_view import InView
from unisono.trace.checks.p04_validity import Validity
from unisono.trace.checks.p05_agreement import DeliveryAgreement
from unisono.trace.checks.p06_fifo import FifoOrder
from unisono.trace.checks.p07_gap_free_fifo import GapFreeFifo
from unisono.trace.checks.p08_causal import CausalOrder
from unisono.trace.checks.p08c_own_clocks import OwnClocks
from unisono.trace.checks.p09a_pairwise import TotalPairwise
from unisono.trace.checks.p09b_acyclic import TotalAcyclic
from unisono.trace.checks.p09c_same_sequence import TotalSameSequence
from unisono.trace.checks.p10_uniform_total import UniformTotal
from unisono.trace.checks.p11_view_agreement import ViewAgreement
from unisono.trace.checks.p12_view_monotony import ViewMonotony
from unisono.trace.checks.p13_sending_view import SendingView
from unisono.trace.checks.p14_virtual_synchrony import VirtualSynchrony
from unisono.trace.checks.p15_transitional_set import TransitionalSet
from unisono.trace.checks.p16_merge import MergedViews
from unisono.trace.checks.p17_safe import Safe
from unisono.trace.checks.p18_two_phase_commit import TwoPhaseCommit
from unisono.trace.checks.p19_state_transfer import StateTransfer
from unisono.trace.checks.p20_primary_component import PrimaryComponent
from unisono.trace.checks.p21_security import Security
from unisono.trace.checks.p22_bounded_liveness import BoundedLiveness
from unisono.trace.checks.p23_resources import Resources
from unisono.trace.checks.p24_determinism import DETERMINISM
from unisono.trace.checks.p25_together import Together
from unisono.trace.checks.p26_stable import Stable
from unisono.trace.checks.p27_safe_primary import SafePrimary
from unisono.trace.checks.p28_receipts import KeptReceipts
from unisono.trace.checks.p29_state_lineage import StateLineage
from unisono.trace.checks.property import PropertyRecord

CHECKERS: dict[str, type[Checker]] = {
    checker.about.id: checker
    for checker in (
        WellFormed,
        NoCreation,
        NoDuplication,
        InView,
        Validity,
        DeliveryAgreement,
        FifoOrder,
        GapFreeFifo,
        CausalOrder,
        OwnClocks,
        TotalPairwise,
        TotalAcyclic,
        TotalSameSequence,
        UniformTotal,
        ViewAgreement,
        ViewMonotony,
        SendingView,
        VirtualSynchrony,
        TransitionalSet,
        MergedViews,
        Safe,
        TwoPhaseCommit,
        StateTransfer,
        PrimaryComponent,
        Security,
        BoundedLiveness,
        Resources,
        Together,
        Stable,
        SafePrimary,
        KeptReceipts,
        StateLineage,
    )
}
"""By property id, in the order in which a report lists them."""


def place_of(property: str) -> tuple[int, str]:
    """Sorts P2 before P10, and P9a before P9b."""
    digits = "".join(c for c in property if c.isdigit())
    return int(digits or 0), property


PROPERTIES: dict[str, PropertyRecord] = {
    one.id: one
    for one in sorted(
        (*(checker.about for checker in CHECKERS.values()), DETERMINISM), key=lambda one: place_of(one.id)
    )
}
"""By id. P24 compares two runs, so there is no checker of a history for it (`p24_determinism.judge_twins`)."""


def _implied(property: str) -> frozenset[str]:
    direct = PROPERTIES[property].implies
    return frozenset(direct).union(*map(_implied, direct))


IMPLIES: dict[str, frozenset[str]] = {one: _implied(one) for one in PROPERTIES if PROPERTIES[one].implies}
"""A property, and all that hold wherever it holds."""
