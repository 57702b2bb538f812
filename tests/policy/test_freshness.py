"""Freshness: connections by the age of their last good sync."""

from datetime import timedelta

from support.world import at
from syncline.policy.freshness import LastSync, Sample, ages_by_provider, judge_freshness

NOW, CREATED = at("12:00"), at("00:00")


def synced(age: timedelta | None) -> LastSync:
    return LastSync("github", None if age is None else NOW - age, CREATED)


def test_each_connection_is_in_one_band() -> None:
    minute, day = timedelta(minutes=1), timedelta(days=1)
    ages = [0 * minute, 5 * minute, 6 * minute, 2 * day, 7 * day, 8 * day, None]

    found = judge_freshness(Sample([synced(age) for age in ages]), NOW)

    counts = {band.label: band.count for band in found.bands if band.count}
    assert counts == {"≤ 5 min": 2, "≤ 15 min": 1, "≤ 7 d": 2, "older": 1, "never": 1}
    assert (found.sampled, found.is_sample) == (7, False)


def test_a_sample_says_that_it_is_one() -> None:
    assert judge_freshness(Sample([synced(None)], weight=20), NOW).is_sample


def test_the_metric_counts_from_the_creation_where_nothing_was_synced() -> None:
    sample = Sample([synced(timedelta(seconds=30)), synced(None), synced(timedelta(hours=-1))])

    assert ages_by_provider(sample, NOW) == {"github": [30, 12 * 3600, 0]}
