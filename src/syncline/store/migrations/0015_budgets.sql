-- Budgets: how many calls all processes together may make, and what is left of each.

CREATE TABLE {schema}.budgets (
    scope       text NOT NULL CHECK (char_length(scope) BETWEEN 1 AND 200),
    source      text NOT NULL CHECK (source IN ('operator', 'settings', 'connector')),
    -- NULL: no limit, also where another source has one.
    calls       bigint CHECK (calls BETWEEN 1 AND 1000000000),
    per_seconds double precision NOT NULL CHECK (per_seconds BETWEEN 1 AND 2678400),
    burst       bigint CHECK (burst BETWEEN 1 AND greatest(1, calls / 2)),
    providers   text[] NOT NULL CHECK (cardinality(providers) BETWEEN 1 AND 100),
    is_reported bool NOT NULL DEFAULT false,
    set_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (scope, source)
);
COMMENT ON TABLE {schema}.budgets IS
    'How many calls may be made in any span of time; of several sources, the operator''s counts, then the settings''';

CREATE TABLE {schema}.budget_buckets (
    scope        text NOT NULL,
    member       text NOT NULL,  -- the tenant or connection; empty where all share the bucket
    tokens       double precision NOT NULL,
    capacity     double precision NOT NULL,
    counted_at   timestamptz NOT NULL,
    -- The last time the bucket was full: calls that were taken before it cannot be given back.
    clipped_at   timestamptz NOT NULL,
    -- When it is full again; then it need not be kept.
    full_at      timestamptz NOT NULL,
    -- What the provider said that it has left, until then.
    left_calls   double precision,
    left_until   timestamptz,
    -- The calls that were taken since then, and how many were allowed in so many seconds.
    window_at    timestamptz NOT NULL,
    window_taken bigint NOT NULL DEFAULT 0,
    window_calls bigint NOT NULL,
    window_seconds double precision NOT NULL,
    PRIMARY KEY (scope, member),
    CONSTRAINT budget_buckets_level CHECK (tokens <= capacity)
) WITH (fillfactor = 50);  -- rewritten often, and no index but the key: room in their own page
COMMENT ON TABLE {schema}.budget_buckets IS
    'The calls that are left of each budget; a bucket that is full need not exist';
COMMENT ON CONSTRAINT budget_buckets_level ON {schema}.budget_buckets IS
    'P1: a bucket never holds more calls than the burst of its budget';

-- Until when a run put its job off, because its provider could not be called. While retry_after is
-- this time, no trigger ends the wait.
ALTER TABLE {schema}.sync_jobs ADD COLUMN deferred_until timestamptz;
-- Not validated: no row has a value yet, and reading them all would hold the queue up.
ALTER TABLE {schema}.sync_jobs ADD CONSTRAINT sync_jobs_deferred_time CHECK (
    deferred_until BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00') NOT VALID;
COMMENT ON CONSTRAINT sync_jobs_deferred_time ON {schema}.sync_jobs IS
    'T2: a time that every client can read';
