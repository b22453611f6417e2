"""The account: which step of which role takes how much of a query's CPU time, and which leg how much of its latency.

    profiles of the processes ──▶ profile ──▶ steps ──┐
    records of the topics ──────▶ traffic ──▶ legs ───┼──▶ a result ──▶ page: tables for the screen, docs/account.md
    psutil ────────────────────▶ totals ──────────────┘

`load.research.account.scenario` runs the system and gathers all this.
"""
