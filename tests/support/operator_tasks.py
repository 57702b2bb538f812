"""What an operator looks for: rows that the tests of his tasks add, on pages and elsewhere."""

FRUITFUL_JOB = "ffffffff-0000-7000-8000-000000000001"
FAILED_JOB = "ffffffff-0000-7000-8000-000000000002"
WORKER = (
    "INSERT INTO {schema}.workers (id, host, pid, version, roles, providers, slots, busy,"
    " stopping, started_at, beat_at) VALUES (gen_random_uuid(), 'sync-1.eu', 1, '0.1.0',"
    " '{executor}', '{github,mailbox}', 64, 9, false, now(), now())"
)
STATEMENTS = (
    # A provider that is down, one call's worth of a budget, and charts of a day.
    "INSERT INTO {schema}.gates (provider_slug, opened_at, opened_because, probe_at, probe_seconds)"
    " VALUES ('mailbox', now() - interval '7 minutes', 'its attempts failed', now(), 60)",
    "INSERT INTO {schema}.budgets (scope, source, calls, per_seconds, providers)"
    " VALUES ('github', 'operator', 5000, 3600, '{github}')",
    "INSERT INTO {schema}.figures (span, provider_slug, starts_at, outcomes, signals, durations,"
    " delays, backlog) SELECT 'hour', 'github', date_trunc('hour', now()) - n * interval '1 hour',"
    " '{\"succeeded\": 100}', 7, '{2,5,5}', '{2,5,5}', 4321 FROM generate_series(1, 20) n",
    # A connection whose grant was revoked, and another whose job failed with a call.
    "INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id, status,"
    " status_reason) VALUES ('acme', 'github', 'acme/revoked', 'needs_reauth',"
    " '{\"why\": \"the grant was revoked\"}'), ('acme', 'github', 'acme/odd', 'active', NULL)",
    "WITH c AS (SELECT * FROM {schema}.connections WHERE external_id = 'acme/odd'), j AS (INSERT"
    " INTO {schema}.sync_jobs (id, tenant_id, provider_slug, connection_id, status, attempts,"
    " started_at, finished_at, error) SELECT 'ffffffff-0000-7000-8000-000000000002', tenant_id,"
    " provider_slug, id, 'failed', 1, now() - interval '3 s', now(),"
    ' \'{"class": "Permanent", "message": "the repository is gone"}\' FROM c RETURNING *)'
    " INSERT INTO {schema}.job_attempts SELECT id, now(), gen_random_uuid(), tenant_id,"
    " connection_id, 'sync-1:42', 3000, error, 'in github.py, line 7',"
    ' \'[{"method": "GET", "url": "https://api.example.com/repos", "status": 410,'
    ' "milliseconds": 123}]\', 1, 0 FROM j',
    "WITH c AS (INSERT INTO {schema}.connections (tenant_id, provider_slug, external_id)"
    " VALUES ('acme', 'mailbox', 'acme/waits') RETURNING *) INSERT INTO {schema}.sync_jobs"
    " (tenant_id, provider_slug, connection_id, attempts, retry_after, error) SELECT tenant_id,"
    " provider_slug, id, 1, now() + interval '1 hour', '{\"class\": \"Transient\"}' FROM c",
    # And a run that took long, and brought two signals.
    "WITH c AS (SELECT * FROM {schema}.connections WHERE external_id = 'acme/odd'), j AS (INSERT"
    " INTO {schema}.sync_jobs (id, tenant_id, provider_slug, connection_id, status, started_at,"
    " finished_at, is_empty) SELECT 'ffffffff-0000-7000-8000-000000000001', tenant_id,"
    " provider_slug, id, 'succeeded', now() - interval '59 minutes', now(), false FROM c"
    " RETURNING *) INSERT INTO {schema}.signals (tenant_id, provider_slug, connection_id, job_id,"
    " kind, received_at) SELECT tenant_id, provider_slug, connection_id, id, 'release_published',"
    " now() FROM j, generate_series(1, 2)",
)
