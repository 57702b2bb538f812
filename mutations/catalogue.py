"""The protections that matter, and how each is switched off in a copy of the source."""

from mutations.protections.budgets import BUDGETS
from mutations.protections.database import DATABASE
from mutations.protections.documents import DOCUMENTS
from mutations.protections.followers import FOLLOWERS
from mutations.protections.gates import GATES
from mutations.protections.jobs import JOBS
from mutations.protections.leases import LEASES
from mutations.protections.programs import PROGRAMS
from mutations.protections.requests import REQUESTS
from mutations.protections.retention import RETENTION
from mutations.protections.schedule import SCHEDULE
from mutations.protections.shares import SHARES
from mutations.protections.streams import STREAMS
from mutations.protections.tenants import TENANTS

MUTATIONS = (
    *JOBS,
    *LEASES,
    *GATES,
    *SHARES,
    *BUDGETS,
    *SCHEDULE,
    *RETENTION,
    *STREAMS,
    *DATABASE,
    *FOLLOWERS,
    *REQUESTS,
    *TENANTS,
    *PROGRAMS,
    *DOCUMENTS,
)
