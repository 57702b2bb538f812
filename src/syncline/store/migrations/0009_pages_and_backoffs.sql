-- How many pages of a stream its present attempt has committed. A page commits only on top of the one
-- before it: where a failover lost that one, the counts differ, and the stream starts again from what
-- is stored. The cursor alone cannot tell, because a page need not bring one.
ALTER TABLE {schema}.sync_jobs ADD COLUMN committed_pages int NOT NULL DEFAULT 0;

-- When a failed job's wait ended. Its `retry_after` is cleared then, so that one index holds all that
-- may be claimed, in order.
ALTER TABLE {schema}.sync_jobs ADD COLUMN ready_at timestamptz;
-- One unreadable time would break a whole claim. Not valid: there is nothing yet that it could refuse,
-- and to look would hold the table.
ALTER TABLE {schema}.sync_jobs ADD CONSTRAINT sync_jobs_ready_at CHECK (
    ready_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00') NOT VALID;
