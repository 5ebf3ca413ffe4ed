"""The operations on background responses that any server may run; `operations.py` has the rules.

1. A background response is stored with a job: all that is needed to run it. The job is deleted with
   the ending of the response.
2. The server in the row of the response is the lease, and its id the fence: a server id is used for
   one lease only, so a server that counted as dead cannot write to a response that another one
   has claimed, nor can it renew its way back (`leases.py`).
3. A response without a living server can be claimed, by one. It has none if its server died, or if
   it was stored or given back without one.
4. Each claim is counted before anything is done: a response that kills its servers is not run for
   ever.
"""

from weft.store import operations
from weft.store.operations import DROP_INCOMPLETE, LOCK_JOB
from weft.store.queries import CLOCK, Beside, Queries, clamp
from weft.store.records import JobClaim

DUE_JOBS = (
    """SELECT j.response FROM job j JOIN response r ON r.id = j.response
    WHERE (r.cancelling OR j.due <= """
    + CLOCK
    + """) AND r.ended IS NULL AND r.server NOT IN (SELECT name FROM server)
    ORDER BY r.created, r.id LIMIT ?"""
)
LIVES = "SELECT 1 FROM server WHERE name = ?"
JOB = "SELECT body, options, tries, due - " + CLOCK + " FROM job WHERE response = ?"
COUNT_TRY = "UPDATE job SET tries = tries + 1 WHERE response = ?"
SET_SERVER = "UPDATE response SET server = ? WHERE id = ?"
RELEASE_RESPONSE = """UPDATE response SET server = '', status = 'queued'
    WHERE id = ? AND server = ? AND ended IS NULL RETURNING id"""
RELEASE_JOB = "UPDATE job SET due = " + CLOCK + " + ?, tries = tries - ? WHERE response = ?"


def due_jobs(limit: int) -> Queries[list[str]]:
    return [str(row[0]) for row in (yield DUE_JOBS, (clamp(limit),))]


def claim_job(id: str, server: str) -> Queries[JobClaim]:
    owner = yield LOCK_JOB, (id,)
    job = yield JOB, (id,)
    if not owner or not job:
        return JobClaim(outcome="missing")
    server_before, is_cancelled = owner[0]
    if (yield LIVES, (server_before,)):
        return JobClaim(outcome="held")
    body, options, tries, wait = job[0]
    # To be cancelled, it need not wait for anything.
    if float(wait or 0) > 0 and not is_cancelled:
        return JobClaim(outcome="held", wait=float(wait or 0))
    yield COUNT_TRY, (id,)
    yield SET_SERVER, (server, id)
    yield DROP_INCOMPLETE, (id, id)
    logged = yield from operations.extent(id)
    return JobClaim(
        outcome="claimed",
        entry=(yield from operations.entry(id)),
        logged=logged.events,
        body=body if isinstance(body, bytes) else b"",
        options=options if isinstance(options, bytes) else b"",
        tries=int(tries or 0) + 1,
    )


def release_job(
    id: str, server: str, after: float, tries: int, beside: Beside | None
) -> Queries[bool]:
    released = bool((yield RELEASE_RESPONSE, (id, server)))
    if released:
        yield RELEASE_JOB, (after, tries, id)
        if beside is not None:
            yield from beside(0)
    return released
