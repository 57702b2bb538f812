-- How many pages of a stream its present attempt has committed. A page commits only on top of the one
-- before it: where a failover lost that one, the counts differ, and the stream starts again from what
-- is stored. The cursor alone cannot tell, because a page need not bring one.
ALTER TABLE {schema}.sync_jobs ADD COLUMN committed_pages int NOT NULL DEFAULT 0;
