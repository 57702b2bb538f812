-- Empty runs are kept for hours, other finished jobs for days, and both are removed by ranges of ids.

-- Whether a run that succeeded brought nothing: no signal, no cursor, no more pages. NULL if that is
-- not known: for jobs that have not ended, ended before this column existed, or were ended by hand.
-- It is written with the end of the job, which rewrites the row anyway, and is in no index.
ALTER TABLE {schema}.sync_jobs ADD COLUMN is_empty boolean;

-- When a connection last succeeded, if the job that says so is gone. The pruner writes it.
ALTER TABLE {schema}.connections ADD COLUMN last_succeeded_at timestamptz;
-- Times that every client can read. Not valid: there is nothing yet that it could refuse, and to look
-- would hold the table.
ALTER TABLE {schema}.connections ADD CONSTRAINT connections_last_succeeded_at CHECK (
    last_succeeded_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00') NOT VALID;

CREATE TABLE {schema}.prune_walks (
    name         text PRIMARY KEY,
    last_id      uuid NOT NULL,
    completed_at timestamptz
) WITH (fillfactor = 20);  -- every batch rewrites a row: room for it in its own page
COMMENT ON TABLE {schema}.prune_walks IS
    'How far pruning has come: what was walked over is not read again, by whichever process';
