-- requires: 1
-- The three tables, whole. {schema} stands for the configured schema's quoted name.

-- Never raises, whatever a person wrote there: what is no object counts as an empty one.
CREATE FUNCTION {schema}.object_or_empty(value jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN jsonb_typeof(value) = 'object' THEN value ELSE '{}'::jsonb END $$;

CREATE TABLE {schema}.connections (
    id               uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant_id        text NOT NULL CHECK (char_length(tenant_id) BETWEEN 1 AND 255),
    provider_slug    text NOT NULL CHECK (char_length(provider_slug) BETWEEN 1 AND 100),
    external_id      text NOT NULL
                     CHECK (external_id <> '' AND octet_length(external_id) <= 1024),
    status           text NOT NULL DEFAULT 'active'
                     CHECK (status IN ('active', 'paused', 'needs_reauth', 'error', 'revoked')),
    status_reason    jsonb,
    config           jsonb DEFAULT '{}',
    metadata         jsonb DEFAULT '{}',
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),

    -- The engine's own. `look_at` is never later than the connection's next slot; the year 2
    -- stands for a connection that is not active and has nothing queued.
    look_at          timestamptz NOT NULL DEFAULT '1970-01-01 00:00:00+00',
    last_finished_at timestamptz,
    interval_stored  text GENERATED ALWAYS AS
                     (left((metadata #> '{sync,interval_seconds}')::text, 64)) STORED,
    interval_planned text,

    CONSTRAINT connections_key UNIQUE (tenant_id, provider_slug, external_id),
    CONSTRAINT connections_tenant_id UNIQUE (tenant_id, id),
    -- Times that every client can read: no infinities, no years before 1 or after 9999.
    CONSTRAINT connections_times CHECK (
        created_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'
        AND updated_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'
        AND look_at BETWEEN '0002-01-01 00:00:00+00' AND '9999-12-01 00:00:00+00'
        AND last_finished_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00')
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX connections_look ON {schema}.connections (look_at, id) WHERE status = 'active';
COMMENT ON INDEX {schema}.connections_look IS
    'S1, S2: the tick reads what may be due, not what exists';

CREATE INDEX connections_interval_edited ON {schema}.connections (id)
    WHERE status = 'active' AND interval_stored IS DISTINCT FROM interval_planned;
COMMENT ON INDEX {schema}.connections_interval_edited IS
    'S2: an interval takes effect at the next tick, however it was changed';

CREATE INDEX connections_left ON {schema}.connections (id)
    WHERE status <> 'active' AND look_at > '0002-01-01 00:00:00+00';
COMMENT ON INDEX {schema}.connections_left IS
    'S11: connections that left active by plain SQL, whose queued jobs the next tick cancels';

CREATE TABLE {schema}.schedulers (
    id        uuid PRIMARY KEY,
    began_at  timestamptz NOT NULL,
    ticked_at timestamptz NOT NULL
);
COMMENT ON TABLE {schema}.schedulers IS
    'Who ticks, and since when: whether a connection was scheduled in time can be judged only then';

CREATE TABLE {schema}.sync_jobs (
    id               uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant_id        text NOT NULL,
    provider_slug    text NOT NULL,
    connection_id    uuid NOT NULL,
    job_type         text NOT NULL DEFAULT 'incremental'
                     CHECK (job_type IN ('incremental', 'full', 'webhook')),
    status           text NOT NULL DEFAULT 'queued'
                     CHECK (status IN ('queued', 'running', 'succeeded', 'completed', 'failed',
                                       'cancelled')),
    priority         smallint NOT NULL DEFAULT 0,
    attempts         int NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    scheduled_at     timestamptz NOT NULL DEFAULT now(),
    retry_after      timestamptz,
    started_at       timestamptz,
    finished_at      timestamptz,
    cursor           jsonb,
    error            jsonb,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),

    -- The scheduler's: the slot it made the job for.
    slot_at          timestamptz,
    -- The claim's: what runs one at a time, who holds it, how often in a row its lease lapsed.
    flight           text NOT NULL DEFAULT '',
    lease_token      uuid,
    lease_expires_at timestamptz,
    lapses           smallint NOT NULL DEFAULT 0,
    -- The mark of a running job that is to be followed by one more.
    again_priority   smallint,
    again_cursor     jsonb,
    -- S4: false for a job that was cancelled unrun because its connection left active.
    counts_as_last   boolean NOT NULL DEFAULT true,

    CONSTRAINT sync_jobs_connection FOREIGN KEY (tenant_id, connection_id)
        REFERENCES {schema}.connections (tenant_id, id) ON DELETE CASCADE,
    -- One unreadable time would break a whole claim.
    CONSTRAINT sync_jobs_times CHECK (
        scheduled_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'
        AND retry_after BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'
        AND started_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'
        AND finished_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'
        AND lease_expires_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'
        AND created_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'
        AND updated_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'
        AND slot_at BETWEEN '0002-01-01 00:00:00+00' AND '9999-12-01 00:00:00+00')
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01,
        autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX idx_sync_jobs_connection_type_status
    ON {schema}.sync_jobs (connection_id, job_type) WHERE status IN ('queued', 'running');
COMMENT ON INDEX {schema}.idx_sync_jobs_connection_type_status IS
    'S8: one pending job per connection and type';

CREATE UNIQUE INDEX sync_jobs_single_flight
    ON {schema}.sync_jobs (connection_id, flight) WHERE status = 'running';
COMMENT ON INDEX {schema}.sync_jobs_single_flight IS
    'E2: one running job per connection, or per connection and type';

CREATE INDEX sync_jobs_ready
    ON {schema}.sync_jobs (provider_slug, priority DESC, scheduled_at, id)
    WHERE status = 'queued' AND retry_after IS NULL;
COMMENT ON INDEX {schema}.sync_jobs_ready IS
    'E1: the claim reads due jobs in order, whatever else waits or has finished';

CREATE INDEX sync_jobs_waiting ON {schema}.sync_jobs (provider_slug, retry_after)
    WHERE status = 'queued' AND retry_after IS NOT NULL;
COMMENT ON INDEX {schema}.sync_jobs_waiting IS
    'E1: jobs in backoff cost the claim nothing until their wait is over';

CREATE INDEX sync_jobs_suspect ON {schema}.sync_jobs (provider_slug)
    WHERE status = 'queued' AND lapses > 1;
COMMENT ON INDEX {schema}.sync_jobs_suspect IS
    'E7: jobs that may be what kills workers, of which a process runs one at a time';

CREATE INDEX sync_jobs_by_connection ON {schema}.sync_jobs (connection_id, finished_at);
COMMENT ON INDEX {schema}.sync_jobs_by_connection IS
    'S4: the last completion of a connection; also serves its history and its deletion';

CREATE TABLE {schema}.signals (
    id            uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant_id     text NOT NULL,
    provider_slug text NOT NULL,
    connection_id uuid NOT NULL,
    job_id        uuid,
    kind          text NOT NULL,
    occurred_at   timestamptz NOT NULL DEFAULT now(),
    received_at   timestamptz NOT NULL DEFAULT now(),
    payload       jsonb NOT NULL DEFAULT '{}',
    dedupe_key    text,
    CONSTRAINT signals_times CHECK (
        occurred_at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
        AND received_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00')
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

CREATE UNIQUE INDEX signals_dedupe ON {schema}.signals (connection_id, dedupe_key)
    WHERE dedupe_key IS NOT NULL;
COMMENT ON INDEX {schema}.signals_dedupe IS
    'Invariant: no signal twice per connection and dedupe key';

CREATE INDEX signals_by_connection ON {schema}.signals (connection_id, id);
COMMENT ON INDEX {schema}.signals_by_connection IS
    'The signals of a connection in order; also serves its deletion';

CREATE INDEX signals_by_tenant ON {schema}.signals (tenant_id, id);
COMMENT ON INDEX {schema}.signals_by_tenant IS
    'The signals of a tenant in order, to read them or to move the tenant elsewhere';
