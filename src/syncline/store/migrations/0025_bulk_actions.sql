-- Actions on everything that a filter matches, done in batches by whoever holds the lease.

CREATE TABLE {schema}.bulk_actions (
    id               uuid PRIMARY KEY,
    tenant_id        text,  -- whose key began it; NULL: an operator or the application
    target           text NOT NULL CHECK (target IN ('connections', 'jobs')),
    action           text NOT NULL,
    filter           jsonb NOT NULL,  -- the fields of the listing's filter
    options          jsonb NOT NULL,
    actor            jsonb NOT NULL,
    expected         int NOT NULL CHECK (expected >= 0),
    state            text NOT NULL DEFAULT 'running'
                     CHECK (state IN ('running', 'done', 'cancelled')),
    done             int NOT NULL DEFAULT 0 CHECK (done >= 0),
    refused          int NOT NULL DEFAULT 0 CHECK (refused >= 0),
    refusals         jsonb NOT NULL DEFAULT '{}',  -- how many for each reason
    refused_first    jsonb NOT NULL DEFAULT '[]',  -- the first ones, by name
    place            uuid,  -- the last row that a batch has read
    started_at       timestamptz NOT NULL
                     CHECK (started_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'),
    finished_at      timestamptz
                     CHECK (finished_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'),
    lease_token      uuid,
    lease_expires_at timestamptz
                     CHECK (lease_expires_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'),
    CONSTRAINT bulk_actions_finished CHECK ((state = 'running') = (finished_at IS NULL))
) WITH (fillfactor = 50);
COMMENT ON TABLE {schema}.bulk_actions IS
    'What people did to everything that a filter matches, and how far it has come';
COMMENT ON CONSTRAINT bulk_actions_finished ON {schema}.bulk_actions IS
    'An action that goes on has not ended, and any other has';

CREATE INDEX bulk_actions_running ON {schema}.bulk_actions (id) WHERE state = 'running';
COMMENT ON INDEX {schema}.bulk_actions_running IS 'Whoever is free finds an action that nobody works on';
CREATE INDEX bulk_actions_finished_at ON {schema}.bulk_actions (finished_at)
    WHERE finished_at IS NOT NULL;
COMMENT ON INDEX {schema}.bulk_actions_finished_at IS 'Finds what is old enough to be deleted';
