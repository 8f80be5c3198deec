"""`unisono causal` and `unisono ptp`, the programs of paper 001, with their options under their letters."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.net.programs import Done, Program, free_ports

NAMES = ("alpha", "beta", "gamma")


def write_members(folder: Path, count: int = 3) -> None:
    ports = sorted(free_ports(count))
    lines = [f"{name} 127.0.0.1 {port}" for name, port in zip(NAMES, ports, strict=False)]
    (folder / "members.dat").write_text("# name host port\n" + "\n".join(lines) + "\n", "utf-8")


def causal(folder: Path, name: str, *options: str) -> Program:
    return Program("causal", "-S", name, *options, folder=folder)


def test_members_of_a_file_talk_in_causal_order(folder: Path) -> None:
    """1.3, 1.4, 1.7: beta answers alpha; gamma, whom alpha's message reaches late (-T), sees the answer after it."""
    write_members(folder)
    with (
        causal(folder, "alpha", "-T", "300000", "-D", "1", "-n", "50") as alpha,
        causal(folder, "beta") as beta,
        causal(folder, "gamma", "-C") as gamma,
    ):
        for one in (alpha, beta, gamma):
            one.expect("active: alpha, beta, gamma")
        alpha.say("what is it?")
        beta.expect("alpha: what is it[?]")
        beta.say("a question")
        gamma.expect(r"\[causal\] beta:0 came with vector \(alpha 1, beta 0, gamma 0\)")
        gamma.expect("alpha: what is it[?]")
        gamma.expect("beta: a question")
        before, _, after = gamma.text.partition("beta:0 came with vector")
        assert "delivered" not in before  # it was held back
        assert after.index("delivered alpha:0") < after.index("delivered beta:0")
        alpha.expect(r"\[ptp\] ACK 0 received of beta")
        beta.say("@alpha between us")
        alpha.expect("beta: between us")
        beta.say("@delta nobody")
        beta.expect("'delta' is not in the group now: alpha, beta, gamma are")
        for one in (beta, alpha, gamma):
            assert one.finish() == 0
        assert "between us" not in gamma.text


def test_a_member_that_is_down_is_dropped_and_a_restart_rejoins(folder: Path) -> None:
    """1.2, 1.5: after 1 + 2 sends the dead member counts as failed; the others go on; started again it is in again."""
    write_members(folder)
    with causal(folder, "alpha", "-D", "-n", "2") as alpha, causal(folder, "beta", "-n", "2") as beta:
        with causal(folder, "gamma") as gamma:
            for one in (alpha, beta, gamma):
                one.expect("active: alpha, beta, gamma")
            gamma.process.kill()
            gamma.process.wait()
        alpha.say("anyone?")
        alpha.expect(r"resend 1 of 0 to gamma")
        alpha.expect(r"resend 2 of 0 to gamma")
        alpha.expect(r"gamma did not acknowledge 0 after 3 sends: it counts as failed")
        alpha.expect(r"gamma is dropped: did not acknowledge what \S+ sent, .*\n\* active: alpha, beta\n")
        beta.expect("alpha: anyone[?]")
        with causal(folder, "gamma") as gamma:
            gamma.expect("active: alpha, beta, gamma")
            alpha.say("welcome back")
            gamma.expect("alpha: welcome back")


def test_acknowledgements_of_a_group_are_altered_and_delayed(folder: Path) -> None:
    """1.7: -s asks, -t delays; the message arrives at once all the same, and the sender sends it again."""
    write_members(folder, 2)
    with causal(folder, "alpha", "-D", "-n", "50") as alpha, causal(folder, "beta", "-s", "-t", "100000", "-D") as beta:
        alpha.expect("active: alpha, beta")
        beta.expect("active: alpha, beta")
        alpha.say("one")
        beta.expect("ACK 0 to alpha: another number[?]")
        beta.see("alpha: one")  # nobody waits for the answer
        alpha.expect("resend 1 of 0 to beta")
        beta.say("what?")
        beta.expect("'what[?]' is no answer")
        beta.say("drop")
        beta.expect("ACK 0 to alpha dropped")
        beta.expect("ACK 0 to alpha: another number[?]")  # of the resend
        beta.say("99")
        beta.expect("ACK 0 to alpha altered to 99")
        beta.expect("ACK 0 to alpha delayed by 100000 µs")
        beta.expect("ACK 99 sent to alpha")
        alpha.expect("ACK 99 received of beta, which acknowledges nothing")
        beta.expect("ACK 0 to alpha: another number[?]")
        beta.say("")
        beta.expect("ACK 0 sent to alpha")
        alpha.expect("ACK 0 received of beta")
        assert beta.text.count("alpha: one") == 1
        assert alpha.finish() == 0


def test_a_bad_members_file_is_told_with_its_line(folder: Path) -> None:
    (folder / "members.dat").write_text("alpha 127.0.0.1 7400\nbeta 127.0.0.1\n", "utf-8")
    answer = Done("causal", "-S", "alpha", folder=folder)
    assert answer.code == 2
    assert "members.dat, line 2:" in answer.err
    (folder / "members.dat").write_text("alpha 127.0.0.1 7400\n", "utf-8")
    assert "it names alpha" in Done("causal", "-S", "zeta", folder=folder).err
    (folder / "members.dat").write_text("alpha localhost 7581\n\nbeta 127.0.0.1 7581\n", "utf-8")
    answer = Done("causal", "-S", "alpha", folder=folder)  # two names of one place
    assert answer.code == 2
    assert "line 3: 127.0.0.1:7581 is the same address as localhost:7581 of 'alpha' in line 1" in answer.err


def ptp(folder: Path, own: int, other: int, *options: str, host: str = "127.0.0.1") -> Program:
    return Program("ptp", "-H", host, "-P", str(other), "-p", str(own), *options, folder=folder)


def test_two_parties_talk(folder: Path) -> None:
    """1.2, 1.8: a message of 5,000 bytes is cut and rebuilt; acknowledgements are delayed and altered by hand (-t -s)."""
    here, there = free_ports(2)
    with (
        ptp(folder, here, there, "-D", "-n", "20") as a,
        ptp(folder, there, here, "-s", "1", "-t", "1", "-D", "1") as b,
    ):
        a.say("hello")
        b.expect("ACK 0 to .*: another number[?]")
        b.see("\nhello\n")
        b.say("7")
        b.expect("ACK 0 to .*: delay it[?]")
        b.say("0.01")
        b.expect("ACK 0 to .* altered to 7")
        b.expect("ACK 0 to .* delayed by 0.01 s")
        a.expect("ACK 7 received, which acknowledges nothing")
        a.see("resend 1 of 0")
        b.expect("received 0, transmission [0-9]+, a duplicate")
        b.end_input()  # nobody answers any more: acknowledgements leave as they are
        a.expect("ACK 0 received\n")
        assert b.wait() == 0
        assert b.text.count("\nhello\n") == 1


@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_two_parties_talk_by_name_and_over_ipv6(folder: Path, host: str) -> None:
    here, there = free_ports(2)
    with ptp(folder, here, there, host=host) as a, ptp(folder, there, here, host=host) as b:
        a.say("x" * 5_000)
        b.expect("x" * 5_000 + "\n")
        b.say("thanks")
        a.expect("thanks\n")
        assert a.finish() == 0
        assert b.finish(signal.SIGTERM) == 0


def test_a_party_that_does_not_answer_counts_as_failed(folder: Path) -> None:
    here, there = free_ports(2)
    with ptp(folder, here, there, "-n", "1", "-D") as a:
        a.say("hello?")
        a.expect("resend 1 of 0")
        a.expect("did not acknowledge 0 after 2 sends: it counts as failed")
        assert a.finish() == 1


def test_a_line_that_was_given_up_is_not_forgotten(folder: Path) -> None:
    """Found by reading: with a later line that came through, the exit code said that all was well."""
    here, there = free_ports(2)
    with ptp(folder, here, there, "-n", "1") as a:
        a.say("hello?")
        a.expect("did not acknowledge 0 after 2 sends: it counts as failed")
        with ptp(folder, there, here) as b:
            b.say("here I am")
            a.expect("here I am")
            a.say("at last")
            b.expect("at last")
            assert b.finish() == 0
        assert a.finish() == 1


def test_a_line_that_is_too_large_is_told_and_the_rest_is_sent(folder: Path) -> None:
    """Found by reading: it ended the program, and what came after it was not sent."""
    here, there = free_ports(2)
    with ptp(folder, here, there, "-n", "20") as a, ptp(folder, there, here) as b:
        b.say("here I am")
        a.expect("here I am")
        a.say("x" * (2**20 + 1))
        a.expect("a message of 1048577 bytes is too large")
        a.say("short")
        b.expect("short\n")
        assert a.finish() == 1


def test_whoever_is_interrupted_says_what_may_not_have_come(folder: Path) -> None:
    here, there = free_ports(2)
    with ptp(folder, here, there, "-n", "100", "-D") as a:
        a.say("one")
        a.say("two")
        a.expect("resend 1 of 0")
        assert a.finish(signal.SIGINT) == 1
        assert f"2 lines are not acknowledged: 127.0.0.1:{there} may not have them." in a.text
