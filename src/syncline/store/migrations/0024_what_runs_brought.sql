-- What a run brought that succeeded, as a JSON list: calls, milliseconds, signals, and its cursor before and after. It is
-- written with the end of the job, which rewrites the row anyway. NULL for a run that brought nothing, and for all others.
-- A text and a list, because every byte and every check is paid by each run that brings something.
ALTER TABLE {schema}.sync_jobs ADD COLUMN brought text;
