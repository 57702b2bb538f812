"""Session settings that say how Postgres plans. `portable` leaves them all out.

They only save time: each statement of the engine's work is written so that it follows its indexes
under any of them.
"""

# A statement that is sent alone (a claim, a close, a trigger) is planned once for any values,
# because planning a claim takes a millisecond. It is planned again every few seconds, because a
# plan for a small table may not suit a large one. Plans that read a whole table are disabled. In a
# transaction Postgres plans as it sees fit.
PLANNERS = ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")
PLANNED_ONCE = {"plan_cache_mode": "force_generic_plan"} | dict.fromkeys(PLANNERS, "off")
# A transaction starts with these, in the same message.
PLANNED_FREELY = "; SET LOCAL plan_cache_mode = auto" + "".join(
    f"; SET LOCAL {planner} = on" for planner in PLANNERS
)
# A listing is planned for its own values, and without a bitmap scan, which reads and sorts
# everything that a filter finds. A page should follow an index and stop.
PLANNED_FOR_ITSELF = (
    PLANNED_FREELY
    + "; SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL enable_bitmapscan = off"
)
