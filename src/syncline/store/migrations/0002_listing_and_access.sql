-- Pages of everything by what people ask for, signals that can be followed, and keys to the API.

-- Every scheduled run moves a connection, and every step a job, within all of its indexes. So these
-- hold only what is not scheduled, has ended, or went wrong.
CREATE INDEX connections_not_active ON {schema}.connections (status, id) WHERE status <> 'active';
COMMENT ON INDEX {schema}.connections_not_active IS
    'The connections in a status that somebody must look at; scheduled ones cost it nothing';

-- The condition is one that no other statement implies: without statistics the planner would else
-- read this index, whole, beside the one that leads to a connection's jobs.
CREATE INDEX sync_jobs_ended ON {schema}.sync_jobs (tenant_id, id)
    WHERE coalesce(status, '') IN ('succeeded', 'completed', 'failed', 'cancelled');
COMMENT ON INDEX {schema}.sync_jobs_ended IS
    'The ended jobs of a tenant, the newest first; a job comes in once, at its end';

CREATE INDEX sync_jobs_unsuccessful ON {schema}.sync_jobs (status, id)
    WHERE coalesce(status, '') IN ('failed', 'cancelled');
COMMENT ON INDEX {schema}.sync_jobs_unsuccessful IS
    'The jobs that came to nothing, the newest first; one that succeeds costs it nothing';

-- Which transaction stored a signal: what ended before the oldest one that still runs is complete,
-- and so can be followed without missing or repeating a row. Older rows get this migration's.
ALTER TABLE {schema}.signals
    ADD COLUMN transaction_id xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id();

CREATE INDEX signals_by_transaction ON {schema}.signals (transaction_id);
COMMENT ON INDEX {schema}.signals_by_transaction IS
    'Signals in the order in which they can be followed; the rows of a transaction share an entry';

CREATE INDEX signals_by_time ON {schema}.signals (received_at);
COMMENT ON INDEX {schema}.signals_by_time IS
    'Signals by when they were stored; the rows of a transaction share an entry';

CREATE INDEX signals_of_connection ON {schema}.signals (connection_id, received_at, id);
COMMENT ON INDEX {schema}.signals_of_connection IS
    'The signals of a connection by when they were stored; also serves its deletion';
DROP INDEX {schema}.signals_by_connection;

CREATE INDEX signals_of_tenant ON {schema}.signals (tenant_id, received_at, id);
COMMENT ON INDEX {schema}.signals_of_tenant IS
    'The signals of a tenant by when they were stored, to read them or to move the tenant';
DROP INDEX {schema}.signals_by_tenant;

CREATE TABLE {schema}.api_keys (
    id         uuid PRIMARY KEY,
    name       text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 100),
    -- NULL for an operator, who sees every tenant.
    tenant_id  text CHECK (char_length(tenant_id) BETWEEN 1 AND 255),
    prefix     text NOT NULL,
    digest     bytea NOT NULL CHECK (octet_length(digest) = 32),
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    CONSTRAINT api_keys_prefix UNIQUE (prefix)
);
COMMENT ON TABLE {schema}.api_keys IS
    'Who may use the API: never the key itself, only what finds it and a digest that proves it';

CREATE TABLE {schema}.api_sessions (
    digest     bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    key_id     uuid NOT NULL REFERENCES {schema}.api_keys (id) ON DELETE CASCADE,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
COMMENT ON TABLE {schema}.api_sessions IS
    'Browsers that signed in with a key; they end with it';

CREATE INDEX api_sessions_by_key ON {schema}.api_sessions (key_id);
COMMENT ON INDEX {schema}.api_sessions_by_key IS 'The sessions that end with a key';
CREATE INDEX api_sessions_by_expiry ON {schema}.api_sessions (expires_at);
COMMENT ON INDEX {schema}.api_sessions_by_expiry IS 'The sessions to be swept away';

CREATE TABLE {schema}.api_requests (
    scope           text NOT NULL,
    idempotency_key text NOT NULL CHECK (char_length(idempotency_key) BETWEEN 1 AND 255),
    digest          bytea NOT NULL CHECK (octet_length(digest) = 32),
    answer          text,
    created_at      timestamptz NOT NULL,
    PRIMARY KEY (scope, idempotency_key)
);
COMMENT ON TABLE {schema}.api_requests IS
    'What was answered to a request with an idempotency key, so that its repetition does nothing';

CREATE INDEX api_requests_by_time ON {schema}.api_requests (created_at);
COMMENT ON INDEX {schema}.api_requests_by_time IS 'The answers to be forgotten';
