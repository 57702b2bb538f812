-- Figures by what happened: runs by outcome, signals, durations, delays and backlog of each provider.

-- What a process has seen since it last wrote, a few rows every ten seconds. Nobody updates them; one process adds
-- them up and removes them.
CREATE TABLE {schema}.figure_reports (
    id            uuid NOT NULL,
    provider_slug text NOT NULL,
    minute        timestamptz NOT NULL,
    outcomes      jsonb NOT NULL,
    signals       bigint NOT NULL,
    durations     int[] NOT NULL,
    delays        int[] NOT NULL,
    backlog       bigint NOT NULL,
    PRIMARY KEY (id, provider_slug)
) WITH (autovacuum_vacuum_scale_factor = 0.1);
COMMENT ON TABLE {schema}.figure_reports IS
    'What each process saw in the last minutes, until it is added to the figures';

CREATE TABLE {schema}.figures (
    span          text NOT NULL CHECK (span IN ('minute', 'hour', 'day')),
    provider_slug text NOT NULL,
    starts_at     timestamptz NOT NULL,
    outcomes      jsonb NOT NULL,
    signals       bigint NOT NULL,
    -- The place of the first bucket in use, then the counts from there on: seconds that runs took, and seconds
    -- from due to start. The bounds are in policy/figures.py.
    durations     int[] NOT NULL,
    delays        int[] NOT NULL,
    backlog       bigint NOT NULL,
    PRIMARY KEY (span, starts_at, provider_slug)
);
COMMENT ON TABLE {schema}.figures IS
    'Runs by outcome, signals, durations, delays and backlog of each provider: minutes for 48 hours, hours for '
    '30 days, days for two years';
