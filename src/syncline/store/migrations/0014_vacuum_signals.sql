-- Where signals are pruned, their space is used again soon: with the server's defaults, vacuum waits
-- until a fifth of the table is dead and then pauses between pages, so the table grows by a quarter.
ALTER TABLE {schema}.signals SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
