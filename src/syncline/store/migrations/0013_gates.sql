-- Providers that nobody may call now: paused by a person, closed because the provider limits us, or open because it is down.

CREATE TABLE {schema}.gates (
    provider_slug  text PRIMARY KEY CHECK (char_length(provider_slug) BETWEEN 1 AND 100),
    paused_at      timestamptz,
    paused_because text CHECK (char_length(paused_because) <= 1000),
    -- The provider limits the application: nobody calls it until then.
    closed_until   timestamptz,
    -- The breaker is open: nothing is claimed but a probe now and then.
    opened_at      timestamptz,
    opened_because text CHECK (char_length(opened_because) <= 1000),
    probe_at       timestamptz,
    probe_seconds  double precision,
    probed_until   timestamptz,  -- a probe runs, or its worker is gone by then
    -- Its jobs start slowly at first: from this rate per second on, of which so many have started.
    ramp_from      timestamptz,
    ramp_rate      double precision,
    ramp_taken     double precision NOT NULL DEFAULT 0,
    -- Times that every client can read: no infinities, no years before 1 or after 9999.
    CONSTRAINT gates_times CHECK (
        paused_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'
        AND closed_until BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'
        AND opened_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'
        AND probe_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'
        AND probed_until BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'
        AND ramp_from BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00')
) WITH (fillfactor = 20);  -- few rows, rewritten often: room for them in their own page
COMMENT ON TABLE {schema}.gates IS
    'Providers that are paused, closed or open; a provider without a row may be called';

CREATE TABLE {schema}.gate_reports (
    provider_slug text NOT NULL,
    process_id    uuid NOT NULL,
    reported_at   timestamptz NOT NULL,
    attempts      int NOT NULL,
    failures      int NOT NULL,
    connections   uuid[] NOT NULL,
    PRIMARY KEY (provider_slug, process_id)
) WITH (fillfactor = 20);
COMMENT ON TABLE {schema}.gate_reports IS
    'What each process saw of a failing provider in the last minute; nobody reports while all is well';

CREATE TABLE {schema}.limited_connections (
    provider_slug text NOT NULL,
    connection_id uuid NOT NULL,
    limited_at    timestamptz NOT NULL,
    limited_until timestamptz NOT NULL,
    PRIMARY KEY (provider_slug, connection_id)
);
COMMENT ON TABLE {schema}.limited_connections IS
    'Connections that a provider limited in the last seconds: several at once mean the application';

CREATE TABLE {schema}.provider_starts (
    provider_slug text NOT NULL,
    minute        timestamptz NOT NULL,
    starts        bigint NOT NULL,
    PRIMARY KEY (provider_slug, minute)
);
COMMENT ON TABLE {schema}.provider_starts IS
    'Jobs of each provider that started in each minute of the last hour: its usual rate';
