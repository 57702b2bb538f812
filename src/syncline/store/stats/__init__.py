"""The queries of the read side, one module per question.

The cost of a query does not grow with what exists: it ends at a bound, follows an index to what is
pending or new, or reads a sample. A figure that is not exact says so. With a tenant id, a query
reads that tenant's rows; with None, everybody's.
"""
