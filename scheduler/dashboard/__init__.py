"""The dashboard: read-only pages in Django admin, one module a page.

``admin`` wires them; ``params`` reads a page's URL, ``rows`` reads the database within a window and a limit,
``figures`` counts, ``outcomes`` and ``bounds`` define what is counted. Nothing here writes.
"""
