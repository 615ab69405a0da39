"""The demo: tasks with a business effect, a ledger that they write themselves, and a command that shows collisions."""
