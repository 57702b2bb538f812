"""The invariants of budgets, caps and free slots (P1, P8, P9)."""

from syncline.store.checks.invariant import Invariant

POLITENESS = (
    Invariant(
        "budgets_kept",
        "No more calls were taken out of a budget within a span than it allows.",
        (),
        """
        -- Buckets out of which too much was taken since their window began.
        SELECT scope, member, window_at, window_taken, window_calls
          FROM {schema}.budget_buckets
         WHERE window_taken > window_calls
         LIMIT $1
        """,
    ),
    Invariant(
        "caps_hold",
        "No job has started since two seconds after a cap was set while it was full.",
        (),
        """
        -- Caps under which more jobs run than they allow, and not all of them since before.
        SELECT nullif(cap.tenant_id, '') AS tenant_id,
               nullif(cap.provider_slug, '') AS provider_slug, cap.max_running, seen.running
          FROM {schema}.caps cap CROSS JOIN LATERAL (
               SELECT count(*) AS running, max(j.started_at) AS started_at
                 FROM {schema}.sync_jobs j
                WHERE j.status = 'running'
                  AND (cap.tenant_id = '' OR j.tenant_id = cap.tenant_id)
                  AND (cap.provider_slug = '' OR j.provider_slug = cap.provider_slug)) seen
         WHERE seen.running > cap.max_running
           AND seen.started_at > cap.set_at + interval '2 seconds' LIMIT $1
        """,
    ),
    Invariant(
        "no_idle_slots",
        "No job has been due for a minute while none of its provider's jobs run, a live worker has"
        " free slots for it, and nothing keeps it back (of each provider, the first 100 are read).",
        ("now",),
        """
        -- Jobs that could have started a minute ago. A gate, a budget or a cap may keep a job back,
        -- and so does a run of its connection that may still be going on.
        WITH idle AS MATERIALIZED (
            SELECT DISTINCT slug FROM {schema}.workers w, unnest(w.providers) AS slug
             WHERE w.beat_at > $2::timestamptz - interval '10 seconds' AND NOT w.stopping
               AND w.started_at < $2::timestamptz - interval '1 minute' AND w.busy < w.slots
               AND NOT EXISTS (SELECT FROM {schema}.gates g WHERE g.provider_slug = slug)
               AND NOT EXISTS (SELECT FROM {schema}.budgets b WHERE slug = ANY (b.providers))
               AND NOT EXISTS (SELECT FROM {schema}.caps c WHERE c.provider_slug IN ('', slug))
               AND NOT EXISTS (SELECT FROM {schema}.sync_jobs r
                                WHERE r.status = 'running' AND r.provider_slug = slug)
        )
        SELECT due.id, due.connection_id, due.provider_slug, due.scheduled_at
          FROM idle CROSS JOIN LATERAL (
               SELECT * FROM {schema}.sync_jobs j
                WHERE j.provider_slug = idle.slug AND j.status = 'queued'
                  AND j.retry_after IS NULL AND j.lapses <= 1
                  AND j.scheduled_at < $2::timestamptz - interval '1 minute'
                ORDER BY j.priority DESC, j.scheduled_at, j.id LIMIT 100) due
          JOIN {schema}.connections c ON c.id = due.connection_id AND c.status = 'active'
         WHERE NOT EXISTS (SELECT FROM {schema}.sync_jobs s
                            WHERE s.connection_id = due.connection_id AND s.status <> 'running'
                              AND (s.stops_by IS NOT NULL OR s.lease_token IS NOT NULL))
         LIMIT $1
        """,
    ),
)
