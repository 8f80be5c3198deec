"""Every deliberate breakage under `tests/mutants`: what it breaks, and who catches it. `./dev mutants` runs them all."""

from __future__ import annotations

from typing import NamedTuple

from tests.mutants.ways import (
    ORDER,
    PROCESS,
    Explorer,
    Groups,
    Story,
    Swarm,
    Transfers,
    Views,
    Way,
)


class Row(NamedTuple):
    """One mutant."""

    mutant: str
    """Module and class."""
    breaks: str
    way: Way

    @property
    def name(self) -> str:
        return self.mutant.split(".")[1]


TRAPS = "tests/unit/test_traps.py::"
NAIVE = TRAPS + "test_on_one_schedule_the_naive_variant_fails_and_ours_passes"
LOAD, FAULTS, HOSTILE = (
    f"tests/{path}.py::" for path in ("sim/test_streams_load", "sim/test_streams_faults", "unit/test_streams_hostile")
)
RMP = "tests/papers/test_002_rmp.py::"
TRANSFER = "tests/sim/test_transfer_faults.py::test_a_story_catches_the_mutant"
TOLD = "tests/stories/test_stories_can_fail.py::test_a_story_catches_the_mutant"
MEMBERSHIP = "tests/unit/test_membership.py::test_a_story_catches_the_mutant"
RING = "tests/sim/test_membership_ring.py::"

MEMBERSHIPS = [
    Row("membership_mutants.InstallsEarly", "installs without all confirmations", Views(0, 0, suspicions=1)),
    Row("membership_mutants.ForgetsAdoptedCut", "forgets the cut it closed with", Views(0, suspicions=1)),
    Row("membership_mutants.DoesNotGroupByCut", "merges what was closed already", Views(0, suspicions=1)),
    Row(
        "membership_mutants.AdoptsUncovered",
        "gives a cut to one whose report it does not count",
        Story(TOLD + "[AdoptsUncovered]"),
    ),
    Row(
        "membership_mutants.VoidsWhatOthersDelivered",
        "adopts a cut without a payload that another may have delivered with it",
        Story(TOLD + "[VoidsWhatOthersDelivered]"),
    ),
    Row(
        "membership_mutants.LeavesAtOnce",
        "leaves without a view change",
        Views(1, 0, leaves=1, order="sequencer"),
    ),
    Row("membership_mutants.KeepsItsOrder", "installs a switch with the old order", Views(1, 0, switches=1)),
    Row("membership_mutants.ExcludesOneAtATime", "proposes without one suspect alone", Views(0, 2)),
    Row(
        "membership_mutants.TrustsTheLastOfAMerge",
        "installs a merge when its last member has confirmed",
        Views(0, 0, cuts=1, greetings=1, cut_off="a"),
    ),
    Row("core_mutants.LeakyEngine", "takes packets in after its report", Views()),
    Row("core_mutants.LeakyEngineOfSwarm", "the same, in the swarm", Groups("fifo", "ViewEngine")),
    Row(
        "membership_mutants.TrustsStaleIncarnations",
        "counts an old life of a process as alive",
        Story(TOLD + "[TrustsStaleIncarnations]"),
    ),
    Row("membership_mutants.ChangesItsProposal", "changes a charter in its ballot", Views(1, 1, 0, 0, 2)),
    Row(
        "membership_mutants.ForgetsConfirmedPrimaries",
        "forgets primaries that it only confirmed",
        Story(TOLD + "[ForgetsConfirmedPrimaries]"),
    ),
    Row("membership_mutants.NeverInstallsLate", "never installs late", Story(TOLD + "[NeverInstallsLate]")),
    Row(
        "membership_mutants.ForgetsTheRecord",
        "starts without what an earlier life has confirmed",
        Story(TOLD + "[ForgetsTheRecord]"),
    ),
    Row(
        "membership_mutants.KeepsItsBallotWhenLeaving",
        "leaves without a view and installs one",
        Story(TOLD + "[KeepsItsBallotWhenLeaving]"),
    ),
    Row(
        "membership_mutants.NeverDenies",
        "is listed in a view that it has left behind, and says nothing",
        Story(MEMBERSHIP + "[NeverDenies]"),
    ),
    Row(
        "membership_mutants.MergesWithTheAccused",
        "merges with those whom their own view suspects",
        Story(MEMBERSHIP + "[MergesWithTheAccused]"),
    ),
    Row(
        "membership_mutants.WaitsForTheForsaken",
        "waits for a ballot that its proposer has given up",
        Story(MEMBERSHIP + "[WaitsForTheForsaken]"),
    ),
    Row(
        "ring_mutants.PassesOnBeforeClosing",
        "passes a decree on before it has closed",
        Story(RING + "test_one_that_passes_the_decree_on_before_closing_is_caught"),
    ),
    Row(
        "ring_mutants.PassesOnOnce",
        "hands the token on once",
        Story(RING + "test_one_that_passes_the_token_on_only_once_is_caught"),
    ),
    Row(
        "ring_mutants.TakesTokensTwice",
        "gathers a token anew",
        Story(RING + "test_a_token_whose_chunks_come_twice_is_gathered_once"),
    ),
]

CORE = [
    Row(
        "client_mutants.CastsAndForgets",
        "forgets what it has cast for a client",
        Story("tests/sim/test_clients.py::test_a_desk_that_forgets_what_it_cast_floods_the_group"),
    ),
    Row(
        "client_mutants.RemembersNothing",
        "carries a repeated request out again",
        Story("tests/sim/test_clients.py::test_a_desk_that_remembers_nothing_serves_twice"),
    ),
    Row("core_mutants.CountsDepartedAsStable", "counts a departed member as stable", Groups("fifo", "Streams")),
    Row("stream_mutants.TakesDuplicates", "shows a resent body again", Groups("fifo", "Streams")),
    Row(
        "stream_mutants.NoTail",
        "a lost tail stays lost",
        Story(TOLD + "[NoTail]"),
    ),
]

ORDERINGS = [
    Row("stamped_mutants.AbcastCounterStays", "skips the maximum when a final stamp comes", Swarm("abcast")),
    Row("stamped_mutants.TompCounterStays", "the same", Swarm("tomp")),
    Row("stamped_mutants.AbcastByCounter", "compares stamps by their counters alone", Swarm("abcast")),
    Row("stamped_mutants.TompByCounter", "the same", Swarm("tomp")),
    Row("stamped_mutants.AbcastHoldersAlone", "merges the stamps of the holders alone", Swarm("abcast")),
    Row("stamped_mutants.TompHoldersAlone", "the same", Swarm("tomp")),
    Row("stamped_mutants.AbcastNoFloor", "merges without the floor of the previous message", Swarm("abcast")),
    Row("stamped_mutants.TompNoFloor", "the same", Story(NAIVE + "[TompNoFloor]")),
    Row("stamped_mutants.TompFinalsFirst", "puts finals first", Swarm("tomp")),
    Row(
        "stamped_mutants.TompOriginalProposals", "merges proposals as they were before they were raised", Swarm("tomp")
    ),
    Row("stamped_mutants.TompOriginalsOfHolders", "both", Story(NAIVE + "[TompOriginalsOfHolders]")),
    Row("tomp_mutants.TompMaximum", "folds the maximum over all acknowledgements", Swarm("tomp")),
    Row(
        "tomp_mutants.TompAnyOrder",
        "needs no FIFO channel",
        Story(TRAPS + "test_on_a_channel_of_its_own_the_naive_variant_fails[TompAnyOrder]"),
    ),
    Row("agreed_mutants.StarCompared", "compares a component that is not known", Swarm("toto")),
    Row("agreed_mutants.InfinityForStrangers", "takes a stranger's packet for a vote", Swarm("toto")),
    Row("agreed_mutants.NothingAnew", "computes nothing anew after a delivery", Swarm("toto")),
    Row("agreed_mutants.TotoAcksNotHandedOver", "does not hand acknowledgements over", Swarm("toto")),
    Row("agreed_mutants.AcksLost", "drops an acknowledgement in a view change", Story(NAIVE + "[AcksLost]")),
    Row(
        "agreed_mutants.AcksBeside",
        "lets acknowledgements overtake data",
        Story(TRAPS + "test_on_a_channel_of_its_own_the_naive_variant_fails[AcksBeside]"),
    ),
    Row("recording_mutants.NotesTickTheClock", "runs otherwise when it is recorded", Groups("abcast", ORDER)),
    Row("causal_mutants.OwnEntryTicks", "counts receipts as events", Groups("causal", ORDER)),
    Row("causal_mutants.EveryEntryTicks", "counts receipts of all", Groups("causal", ORDER)),
    Row("causal_mutants.NoPlaceholders", "leaves others no place", Story(NAIVE + "[NoPlaceholders]")),
    Row("causal_mutants.NotClosed", "cuts without the causes", Swarm("causal")),
    Row("sequencer_mutants.WithoutSeen", "keeps what follows something lost", Swarm("causal-total")),
    Row("sequencer_mutants.ForgetsLeftovers", "forgets what has no number", Groups("causal-total", ORDER)),
    Row(
        "sequencer_mutants.BareTotal",
        "numbers messages as they come",
        Story("tests/papers/test_003_lectures.py::test_a_bare_total_order_need_not_be_fifo"),
    ),
    Row("stamped_mutants.FinalsFirstAbcast", "puts finals first", Explorer((2, 1, 0))),
    Row("stamped_mutants.FinalsFirstTomp", "the same", Explorer((2, 1, 0))),
    Row("stamped_mutants.OriginalProposalsAbcast", "merges the original proposals of the holders", Explorer((2, 1, 0))),
    Row("stamped_mutants.OriginalProposalsTomp", "the same", Explorer((2, 1, 0))),
    Row("stamped_mutants.ForgetsRaisesTomp", "reports stamps that were not raised", Explorer((2, 1, 0))),
    Row("explore_mutants.NeverAcknowledges", "drops every explicit acknowledgement", Explorer((1, 0), 0)),
    Row("explore_mutants.FirstReportWins", "believes the first report", Explorer((1, 0))),
    Row("explore_mutants.WantsTooMuch", "wants a packet that was never cast", Explorer((1, 0))),
    Row("explore_mutants.Stumbles", "raises an exception", Explorer((2, 0), 0)),
    Row("rmp_mutants.AcceptsAlways", "gives the lock to everyone", Explorer((1, 1))),
    Row("rmp_mutants.YieldsToNobody", "yields the lock to nobody", Explorer((1, 1))),
    Row("rmp_mutants.LowerRankWins", "grants by rank without stamps", Explorer((1, 1))),
    Row("rmp_mutants.ReleasesEarly", "gives the lock up before the votes are in", Explorer((1, 1))),
    Row("rmp_mutants.NeverYields", "holds the lock without end", Story(RMP + "test_nobody_starves")),
    Row("rmp_mutants.DeliversOnReceipt", "delivers before the commit", Swarm("rmp")),
    Row("rmp_mutants.MajorityCommits", "commits with a majority", Swarm("rmp")),
    Row("rmp_mutants.KeepsOnlyCommitted", "drops what all hold and none saw committed", Explorer((1, 0))),
    Row("rmp_mutants.DropsWhatOneDelivered", "drops what one survivor delivered", Explorer((1, 0))),
    Row("rmp_mutants.AbortsTheLiving", "drops a living member's message", Explorer((1, 0))),
    Row("rmp_mutants.ForgetsUnsent", "forgets what waits for the lock", Explorer((1, 0))),
    Row("rmp_mutants.DeliversWhatItHas", "delivers what others lack", Explorer((1, 0))),
    Row("rmp_mutants.CommitsUnheard", "commits without a vote", Swarm("rmp")),
    Row(
        "rmp_mutants.ProposesUnlocked",
        "proposes a view in the middle of a hold",
        Story("tests/sim/test_boundaries.py::test_a_proposer_without_the_lock_is_found"),
    ),
]

STREAMS = [
    Row(
        "stream_mutants.NoPoll",
        "never asks how far others are",
        Story(FAULTS + "test_a_lost_acknowledgement_to_a_third_member_is_polled_for"),
    ),
    Row(
        "stream_mutants.PollsOnlyInSilence",
        "puts polls off",
        Story(FAULTS + "test_a_missing_acknowledgement_is_polled_for_in_a_busy_group"),
    ),
    Row(
        "stream_mutants.PutsOff",
        "starts the timer anew for anything",
        Story(FAULTS + "test_a_stream_that_stands_still_is_not_put_off_by_another"),
    ),
    Row(
        "stream_mutants.NoAckOfDuplicates",
        "drops the acknowledgement of a duplicate",
        Story(TOLD + "[NoAckOfDuplicates]"),
    ),
    Row(
        "stream_mutants.NoKarn",
        "measures resent datagrams",
        Story(FAULTS + "test_a11_the_timeout_converges_above_the_round_trip"),
    ),
    Row("stream_mutants.NoBackOff", "repeats without back-off", Story(FAULTS + "test_a12_a_peer_silent_for_minutes")),
    Row("stream_mutants.NoJitter", "repeats without jitter", Story(FAULTS + "test_a12_a_peer_silent_for_minutes")),
    Row("stream_mutants.NoCap", "backs off without a cap", Story(FAULTS + "test_a12_a_peer_silent_for_minutes")),
    Row(
        "stream_mutants.OneGapAtATime",
        "asks for one gap a round",
        Story(FAULTS + "test_a14_all_gaps_of_a_burst_are_asked_for_in_one_round"),
    ),
    Row(
        "stream_mutants.Impatient", "takes late for lost", Story(FAULTS + "test_a_network_that_reorders_is_given_time")
    ),
    Row(
        "stream_mutants.AsksForEver",
        "asks for a gap without end",
        Story(FAULTS + "test_a_gap_is_asked_for_so_often_and_no_more"),
    ),
    Row(
        "stream_mutants.AsksOriginOnly",
        "asks nobody but the origin",
        Story(FAULTS + "test_whoever_holds_a_cast_answers_for_an_origin_that_is_gone"),
    ),
    Row(
        "stream_mutants.IgnoresRumours",
        "ignores what third members have",
        Story(FAULTS + "test_whoever_holds_a_cast_answers_for_an_origin_that_is_gone"),
    ),
    Row(
        "stream_mutants.GivesUpForGood",
        "never asks again",
        Story(LOAD + "test_soak_with_crashes_notices_mutants[GivesUpForGood]"),
    ),
    Row(
        "stream_mutants.IgnoresRoom",
        "ignores a receiver without room",
        Story(LOAD + "test_e1_a_slow_application_slows_the_caster"),
    ),
    Row(
        "stream_mutants.NeverShrinks",
        "keeps its window on loss",
        Story(LOAD + "test_the_window_shrinks_on_loss_and_grows_again"),
    ),
    Row(
        "stream_mutants.DataFirst",
        "lets control wait behind data",
        Story(LOAD + "test_e4_control_never_waits_behind_data"),
    ),
    Row(
        "stream_mutants.NeverPushes",
        "waits with a full window",
        Story(LOAD + "test_a_full_window_does_not_wait_for_delayed_acknowledgements"),
    ),
    Row(
        "stream_mutants.AnswersEverything",
        "answers a flood in full",
        Story(HOSTILE + "test_f10_a_flood_of_requests_gets_a_bounded_answer"),
    ),
    Row(
        "stream_mutants.BelievesAcks",
        "believes acknowledgements of what was never sent",
        Story(HOSTILE + "test_f9_an_ack_of_what_was_never_sent_is_refused"),
    ),
    Row("stream_mutants.Greedy", "holds whatever comes", Story(HOSTILE + "test_what_waits_behind_a_gap_is_bounded")),
    Row(
        "stream_mutants.NoReplayWindow",
        "takes a counter twice",
        Story(HOSTILE + "test_f7_a_repeated_counter_is_refused"),
    ),
    Row(
        "stream_mutants.TrustsForwards",
        "takes others' casts from anyone",
        Story(HOSTILE + "test_f6_casts_of_another_origin_are_taken_only_if_asked_for"),
    ),
]

TRANSFERS = [
    Row("transfer_mutants.NoFrontier", "a snapshot that says it holds nothing", Story(TOLD + "[NoFrontier]")),
    Row("transfer_mutants.AppliesTwice", "shows what the snapshot holds", Story(TOLD + "[AppliesTwice]")),
    Row("transfer_mutants.MixesDonors", "goes on with another donor's bytes", Story(TOLD + "[MixesDonors]")),
    Row("transfer_mutants.MergesByArrival", "merges in the order of arrival", Story(TOLD + "[MergesByArrival]")),
    Row("transfer_mutants.EveryoneBegins", "all begin with their own state", Story(TOLD + "[EveryoneBegins]")),
    Row("transfer_mutants.ForgetsBackPressure", "hides that it has no room", Story(TRANSFER + "[ForgetsBackPressure]")),
    Row("transfer_mutants.HoldsEverySnapshot", "lets no snapshot go", Story(TOLD + "[HoldsEverySnapshot]")),
    Row("transfer_mutants.AsksOnlyThePart", "asks nobody but the part", Story(TRANSFER + "[AsksOnlyThePart]")),
    Row("transfer_mutants.DoesNotWaitForDeliveries", "gives a state that others lack", Transfers("sequencer")),
    Row("transfer_mutants.MergesWithoutAskingAll", "merges without a silent part", Transfers("causal")),
    Row("transfer_mutants.ServesWhileMerging", "serves one part's state", Transfers("sequencer")),
    Row("transfer_mutants.KeepsOverMerge", "keeps a pulled state over a merge", Transfers("fifo")),
    Row("transfer_mutants.DropsTheBuffer", "drops what it held back", Transfers("sequencer")),
]

CONTRACT_STORIES = "tests/scenarios/test_contract_mutants.py::"

SHOWN = [
    Row(
        "shown_mutants.NamesEverybody",
        "says that everybody came along",
        Story(CONTRACT_STORIES + "test_wrong_sets_of_a_view_break_p25[NamesEverybody-member.ViewEngine]"),
    ),
    Row(
        "shown_mutants.JoinedAsBefore",
        "calls joined who was not in the last view",
        Story(CONTRACT_STORIES + "test_wrong_sets_of_a_view_break_p25[JoinedAsBefore-shown.Entered]"),
    ),
    Row("shown_mutants.StableOnReceipt", "calls stable what is delivered here", Groups("fifo", "Stability")),
    Row("shown_mutants.RemainderFirst", "shows the remainder before the transition", Groups("fifo", "ViewEngine")),
    Row("shown_mutants.LosesAnEvent", "loses a message on the way to the application", Groups("fifo", PROCESS)),
    Row("shown_mutants.AltersAnEvent", "alters a message on the way to the application", Groups("fifo", PROCESS)),
    Row("shown_mutants.AltersAView", "alters a view on the way to the application", Groups("fifo", PROCESS)),
]

DIFFERS = "tests/sim/test_comparison.py::test_the_next_view_finds_what_one_member_showed_otherwise"
DELIVERIES = [
    Row(f"delivery_mutants.{name}", breaks, Story(f"{DIFFERS}[sequencer-{name}]"))
    for name, breaks in (
        ("DropsADelivery", "does not show its application a message"),
        ("DoublesADelivery", "shows a message twice"),
        ("AltersADelivery", "shows another payload"),
        ("SwapsTwoDeliveries", "shows two messages in the other order"),
    )
]

CONTRACT = [
    Row(
        "contract_mutants.StableWhenReceived",
        "calls stable what all have received",
        Story(TOLD + "[StableWhenReceived]"),
    ),
    Row(
        "contract_mutants.AllowsAmnesia",
        "lets a majority without the state be primary",
        Story(CONTRACT_STORIES + "test_members_that_restarted_empty_become_primary"),
    ),
    Row(
        "contract_mutants.LowestViewCarriesTheState",
        "lets the part from the lowest view carry the state",
        Groups("fifo", "Membership", 60),
    ),
    Row(
        "contract_mutants.DropsABatch",
        "loses a batch between member and application",
        Story(CONTRACT_STORIES + "test_what_is_altered_before_it_is_recorded_breaks_p25[DropsABatch]"),
    ),
    Row(
        "contract_mutants.WidensTogether",
        "names too many in a view between member and application",
        Story(CONTRACT_STORIES + "test_what_is_altered_before_it_is_recorded_breaks_p25[WidensTogether]"),
    ),
    Row(
        "contract_mutants.WidensTogetherUnseen",
        "the same, behind the recorder",
        Story(CONTRACT_STORIES + "test_what_is_altered_behind_the_recorder_is_seen_in_the_events"),
    ),
]

ROWS = [*MEMBERSHIPS, *CORE, *ORDERINGS, *STREAMS, *TRANSFERS, *SHOWN, *DELIVERIES, *CONTRACT]

HARMLESS = "breaks no promise; a test shows that it only costs time"
NOT_ALONE = {
    "stream_mutants.NoTimer": "half of NoTail; a poll heals it",
    "stamped_mutants.TompRaisedFirst": HARMLESS,
    "stamped_mutants.AbcastFinalsFirst": HARMLESS,
    "stamped_mutants.AbcastFinalsFirstWithFloor": HARMLESS,
    "stamped_mutants.TompFinalsFirstWithFloor": HARMLESS,
    "tomp_mutants.TompMinimum": HARMLESS,
    "tomp_mutants.AbcastAnyOrder": "shows that ABCAST does not need what TOMP needs",
    "sequencer_mutants.NamedOrder": "a packet of BareTotal",
}
"""Classes that are no rows of their own, and why."""
