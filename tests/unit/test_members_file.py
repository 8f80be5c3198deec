"""members.dat: what is read, and that every mistake is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from unisono.core.errors import Misuse
from unisono.runtime.members_file import Listed, find_member, parse_members, read_members


def test_names_hosts_and_ports_are_read_in_order() -> None:
    text = "# our group\n\nalpha 127.0.0.1 7400\nbeta,localhost,7401   # commas do as well\n\tgamma ::1 7402\n"
    assert parse_members(text, "members.dat") == [
        Listed("alpha", "127.0.0.1", 7400, 3),
        Listed("beta", "localhost", 7401, 4),
        Listed("gamma", "::1", 7402, 5),
    ]
    assert Listed("gamma", "::1", 7402).address == "[::1]:7402"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("beta 127.0.0.1", "not a name, a host and a port"),
        ("beta 127.0.0.1 7401 more", "not a name, a host and a port"),
        ("beta 127.0.0.1 port", "is not a port"),
        ("beta 127.0.0.1 0", "is not a port"),
        ("beta 127.0.0.1 65536", "is not a port"),
        ("beta 127.0.0.1 ٧٤", "is not a port"),
        ("beta 127.0.0.1:7401 7401", "is not a host"),
        ("alpha 127.0.0.1 7401", "is there twice"),
        ("beta 127.0.0.1 7400", "is 'alpha' already"),
    ],
)
def test_a_bad_line_is_told_with_its_number(line: str, complaint: str) -> None:
    with pytest.raises(Misuse, match=rf"members\.dat, line 3: .*{complaint}"):
        parse_members(f"# two good lines first\nalpha 127.0.0.1 7400\n{line}\n", "members.dat")


def test_a_file_without_members_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "members.dat"
    with pytest.raises(Misuse, match="cannot be read"):
        read_members(path)
    path.write_text("# nobody\n", "utf-8")
    with pytest.raises(Misuse, match="names no member"):
        read_members(path)
    path.write_bytes(b"\xff\xfe alpha")
    with pytest.raises(Misuse, match="is not text"):
        read_members(path)


def test_the_local_member_must_be_in_the_file() -> None:
    members = parse_members("alpha h 1\nbeta h 2\n", "members.dat")
    assert find_member(members, "beta", "members.dat").port == 2
    with pytest.raises(Misuse, match="no member 'delta': it names alpha, beta"):
        find_member(members, "delta", "members.dat")
    with pytest.raises(Misuse, match="-S: alpha, beta"):
        find_member(members, None, "members.dat")
