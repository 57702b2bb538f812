-- A running job that is cancelled: whose run it was, and until when that may still call the provider.
-- The connection's next job waits for it. The worker clears both once its connector has stopped.
ALTER TABLE {schema}.sync_jobs ADD COLUMN stops_by timestamptz, ADD COLUMN stops_token uuid;
-- Not valid: there is nothing yet that it could refuse, and to look would hold the table.
ALTER TABLE {schema}.sync_jobs ADD CONSTRAINT sync_jobs_stops_by CHECK (
    stops_by BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00') NOT VALID;
-- Who cancels a running job by plain SQL leaves its lease, which says the same.
CREATE INDEX sync_jobs_stopping ON {schema}.sync_jobs (connection_id)
    WHERE status <> 'running' AND (stops_by IS NOT NULL OR lease_token IS NOT NULL);
COMMENT ON INDEX {schema}.sync_jobs_stopping IS
    'E10: the claim leaves out connections whose cancelled run may not have stopped yet';

-- Connections that the last tick found in somebody else's hands: it cannot have been their tick.
ALTER TABLE {schema}.schedulers ADD COLUMN held uuid[] NOT NULL DEFAULT '{}';
