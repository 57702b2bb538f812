-- A large cell at noon: 40 000 connections, 200 000 finished jobs, 50 000 jobs in backoff and
-- 50 000 scheduled ahead, 50 000 signals. Due are 50 connections, 50 jobs, and 20 jobs whose wait is over.
CREATE FUNCTION pg_temp.id(kind int, n int) RETURNS uuid LANGUAGE sql AS
    $$ SELECT (kind || lpad(to_hex(n), 31, '0'))::uuid $$;

SET session_replication_role = replica;  -- spares 300 000 checks of a foreign key
ALTER TABLE syncline.connections SET (autovacuum_enabled = false);
ALTER TABLE syncline.sync_jobs SET (autovacuum_enabled = false);
ALTER TABLE syncline.signals SET (autovacuum_enabled = false);

INSERT INTO syncline.connections
       (id, tenant_id, provider_slug, external_id, look_at, last_finished_at, metadata)
SELECT pg_temp.id(1, n), 'tenant ' || n % 500, 'provider ' || n % 3, n::text,
       CASE WHEN n > 39950 THEN timestamptz '2025-01-01 11:59+00' ELSE '2025-01-01 13:00+00' END,
       '2025-01-01 11:40+00',
       '{"sync": {"cursor": {"page": 7}, "next_run_at": "2025-01-01T13:00:00Z"}}'
  FROM generate_series(1, 40000) n;

INSERT INTO syncline.sync_jobs
       (id, tenant_id, provider_slug, connection_id, status, scheduled_at, started_at, finished_at)
SELECT pg_temp.id(2, n), 'tenant ' || c % 500, 'provider ' || c % 3,
       pg_temp.id(1, c), 'succeeded', at, at, at
  FROM generate_series(0, 199999) n,
       LATERAL (SELECT n % 40000 + 1 AS c,
                       timestamptz '2025-01-01 11:00+00' + n / 40000 * interval '9 min' AS at) x;

INSERT INTO syncline.sync_jobs
       (id, tenant_id, provider_slug, connection_id, job_type, scheduled_at, retry_after, attempts)
SELECT pg_temp.id(3, n), 'tenant ' || c % 500, 'provider ' || c % 3,
       pg_temp.id(1, c), CASE WHEN n < 25000 THEN 'full' ELSE 'webhook' END,
       '2025-01-01 11:00+00',
       CASE WHEN n < 20 THEN timestamptz '2025-01-01 11:58+00' ELSE '2025-01-01 12:30+00' END, 1
  FROM generate_series(0, 49999) n, LATERAL (SELECT n % 25000 + 1 AS c) x;

INSERT INTO syncline.sync_jobs
       (id, tenant_id, provider_slug, connection_id, job_type, scheduled_at)
SELECT pg_temp.id(4, n), 'tenant ' || c % 500, 'provider ' || c % 3,
       pg_temp.id(1, c), CASE WHEN n < 38000 THEN 'incremental' ELSE 'full' END,
       CASE WHEN n < 50 THEN timestamptz '2025-01-01 11:58+00' ELSE '2025-01-01 12:10+00' END
  FROM generate_series(0, 49999) n,
       LATERAL (SELECT CASE WHEN n < 38000 THEN n + 100 ELSE n - 10000 END AS c) x;

INSERT INTO syncline.signals (id, tenant_id, provider_slug, connection_id, kind, received_at)
SELECT pg_temp.id(5, n), 'tenant ' || n % 500, 'provider ' || n % 3, pg_temp.id(1, n % 40000 + 1),
       'seen', timestamptz '2025-01-01 11:00+00' + n * interval '50 ms'
  FROM generate_series(0, 49999) n;

RESET session_replication_role;
