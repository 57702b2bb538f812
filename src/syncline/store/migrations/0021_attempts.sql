-- What failed attempts of jobs came to: the last ten of each job, kept as long as the job.

CREATE TABLE {schema}.job_attempts (
    job_id        uuid NOT NULL,
    ended_at      timestamptz NOT NULL
                  CHECK (ended_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'),
    id            uuid NOT NULL,
    tenant_id     text NOT NULL,
    connection_id uuid NOT NULL,
    worker        text,    -- host and process; NULL if its lease lapsed
    milliseconds  bigint,  -- NULL if nobody knows
    error         jsonb NOT NULL,
    trace         text,
    calls         jsonb NOT NULL,  -- the first and the last ones
    call_count    int NOT NULL,
    signals       int NOT NULL,  -- of the pages that it had committed
    -- Jobs are pruned by ranges of ids, and their attempts after them by the same ranges. A key to the jobs would
    -- cost each pruned job a look at this table.
    PRIMARY KEY (job_id, ended_at, id),
    CONSTRAINT job_attempts_connection FOREIGN KEY (tenant_id, connection_id)
        REFERENCES {schema}.connections (tenant_id, id) ON DELETE CASCADE
);
COMMENT ON TABLE {schema}.job_attempts IS
    'R5: the last ten failed attempts of each job';

CREATE INDEX job_attempts_of_connection ON {schema}.job_attempts (connection_id);
COMMENT ON INDEX {schema}.job_attempts_of_connection IS
    'The attempts that are deleted with a connection';
