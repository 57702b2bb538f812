-- Weights of tenants, and how many jobs of a tenant or a provider may run at once.

CREATE TABLE {schema}.tenant_shares (
    tenant_id   text PRIMARY KEY CHECK (char_length(tenant_id) BETWEEN 1 AND 255),
    weight      double precision NOT NULL DEFAULT 1 CHECK (weight BETWEEN 0.01 AND 1000),
    -- It asks for more than its share, as a worker saw within the last seconds, with so many due.
    heavy_until timestamptz
                CHECK (heavy_until BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'),
    heavy_due   int NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
COMMENT ON TABLE {schema}.tenant_shares IS
    'Tenants that have a weight, or ask for more than their share now; the others have no row';

CREATE TABLE {schema}.caps (
    -- An empty text stands for every tenant, or every provider.
    tenant_id     text NOT NULL DEFAULT '' CHECK (char_length(tenant_id) <= 255),
    provider_slug text NOT NULL DEFAULT '' CHECK (char_length(provider_slug) <= 100),
    max_running   int NOT NULL CHECK (max_running BETWEEN 0 AND 1000000),
    set_at        timestamptz NOT NULL DEFAULT now()
                  CHECK (set_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'),
    PRIMARY KEY (tenant_id, provider_slug),
    CONSTRAINT caps_whose CHECK (tenant_id <> '' OR provider_slug <> '')
);
COMMENT ON TABLE {schema}.caps IS
    'P9: how many jobs may run at once; a claim locks the row before it counts them';

-- Whether a job was claimed under a cap. The claim writes it; a constant default rewrites nothing.
ALTER TABLE {schema}.sync_jobs ADD COLUMN is_counted boolean NOT NULL DEFAULT false;
CREATE INDEX sync_jobs_counted ON {schema}.sync_jobs (tenant_id, provider_slug)
    WHERE status = 'running' AND is_counted;
COMMENT ON INDEX {schema}.sync_jobs_counted IS
    'P9: the running jobs that are under a cap; no other job enters it';
