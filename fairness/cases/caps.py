"""A cap is never exceeded, not for one commit, and what is left of it is used (P9)."""

import asyncio

from faults.waiting import until

from fairness.cases import Case
from fairness.measure import Figure
from fairness.stage import Stage

CAP = 10
CLAIMERS = 8
INSTRUMENTS = """
    CREATE TABLE public.runs (
        transaction_id xid DEFAULT pg_current_xact_id()::xid, tenant_id text, change int);
    CREATE FUNCTION public.note_run() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.runs (tenant_id, change)
        VALUES (NEW.tenant_id, CASE WHEN NEW.status = 'running' THEN 1 ELSE -1 END);
        RETURN NULL;
    END $$;
    CREATE TRIGGER note_run AFTER UPDATE ON syncline.sync_jobs FOR EACH ROW
       WHEN ((OLD.status = 'running') <> (NEW.status = 'running'))
    EXECUTE FUNCTION public.note_run();
"""
# A claim that saw a run end has a later commit than the end, so the order is that of the commits.
RUNNING = """
    SELECT max(running) AS most, count(*) AS commits,
           sum(running * seconds) / sum(seconds) AS mean
      FROM (SELECT sum(change) OVER (ORDER BY at) AS running,
                   extract(epoch FROM coalesce(lead(at) OVER (ORDER BY at), at) - at) AS seconds
              FROM (SELECT pg_xact_commit_timestamp(transaction_id) AS at, sum(change) AS change
                      FROM public.runs WHERE tenant_id = $1 GROUP BY 1) AS commits) AS audited
"""


async def capped_tenant(stage: Stage) -> list[Figure]:
    """Eight workers claim for one tenant that may have ten runs, and for one without a cap."""
    seconds = 15.0 if stage.is_quick else 120.0
    stage.nap_seconds = 0.2
    await stage.database.execute(INSTRUMENTS)
    await stage.command("tenants", "set", "capped", "--max-running", str(CAP))
    await stage.add_connections(20_000 if not stage.is_quick else 3_000, "capped", "nap")
    await stage.add_connections(200, "free", "nap", spread_seconds=60)
    stage.start(4 if stage.is_quick else CLAIMERS)
    await until(lambda: has_run(stage), within=60, what="a run under the cap")
    loop = asyncio.get_running_loop()
    await stage.kill_every(seconds / (2 if stage.is_quick else 8), until_at=loop.time() + seconds)
    [capped] = await stage.database.fetch(RUNNING, "capped")
    [free] = await stage.database.fetch(RUNNING, "free")
    return [
        Figure("most runs at once", int(capped["most"] or 0), CAP, CAP),
        Figure("commits", int(capped["commits"])),
        Figure("mean", float(capped["mean"] or 0)),
        Figure("commits of another tenant", int(free["commits"]), at_least=1),
    ]


async def has_run(stage: Stage) -> bool:
    return bool(await stage.value("SELECT count(*) FROM public.runs WHERE tenant_id = 'capped'"))


CASES = (Case("a cap", "a tenant never has one run too many, at any commit", (), capped_tenant),)
