"""The demo: tasks with a business effect, the ledger that they write, and a command that shows collisions."""
