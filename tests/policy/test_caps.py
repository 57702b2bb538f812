"""Where there is room under caps (P9)."""

from support.world import at
from syncline.policy.caps import Cap, Rooms

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
