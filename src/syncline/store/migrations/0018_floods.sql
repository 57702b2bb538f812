-- Since when a tenant asks for more than its share, and how many others have jobs due beside it.

ALTER TABLE {schema}.tenant_shares
    ADD COLUMN heavy_since timestamptz,
    ADD COLUMN heavy_others int NOT NULL DEFAULT 0;
ALTER TABLE {schema}.tenant_shares ADD CONSTRAINT tenant_shares_heavy_since_check
    CHECK (heavy_since BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00');
