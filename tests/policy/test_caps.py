"""Where there is room under caps (P9)."""

from support.world import at
from syncline.policy.caps import Cap, Rooms, places_for_block

NOON = at("12:00")
CAPS = [Cap("acme", "", 5, NOON), Cap("", "github", 6, NOON), Cap("acme", "github", 2, NOON)]
KEYS = {cap.key for cap in CAPS}


def take_all(rooms: Rooms, tenant: str, provider: str) -> int:
    count = 0
    while count < 100 and rooms.has_room(tenant, provider):
        rooms.take(tenant, provider)
        count += 1
    return count


def test_a_job_needs_room_under_each_of_its_caps() -> None:
    rooms = Rooms(CAPS, {}, held=KEYS)
    assert take_all(rooms, "acme", "github") == 2
    assert take_all(rooms, "acme", "tickets") == 3
    assert take_all(rooms, "other", "github") == 4


def test_what_runs_counts_under_each_of_its_caps() -> None:
    running = {("acme", "github"): 1, ("acme", "tickets"): 3, ("other", "github"): 5}
    rooms = Rooms(CAPS, running, held=KEYS)
    assert not rooms.has_room("acme", "github")
    assert take_all(rooms, "acme", "tickets") == 1
    assert take_all(rooms, "other", "github") == 0


def test_a_cap_that_is_not_held_has_no_room() -> None:
    rooms = Rooms(CAPS, {}, held=KEYS - {("acme", "")})
    assert not rooms.has_room("acme", "tickets")
    assert take_all(rooms, "other", "github") == 6


def test_a_job_under_no_cap_always_has_room() -> None:
    rooms = Rooms(CAPS, {}, held=())
    assert take_all(rooms, "other", "tickets") == 100


def test_places_in_blocks_are_taken() -> None:
    rooms = Rooms(CAPS, {("acme", "tickets"): 1}, held=KEYS, in_blocks={("acme", ""): 3})
    assert take_all(rooms, "acme", "tickets") == 1


def test_a_block_that_outlived_its_cap_counts_nowhere() -> None:
    rooms = Rooms(CAPS, {}, held=KEYS, in_blocks={("gone", ""): 3})
    assert rooms.least == 2


def test_a_block_holds_many_claims_and_leaves_most_of_the_room() -> None:
    assert places_for_block(100_000, 41) == 8200
    assert places_for_block(1000, 41) == 250
    assert places_for_block(400, 41) == 0, "the others need it"
