"""How healthy the stores of the backends are: asking and judging apart, so that each judgement is a pure function.

Nothing here changes a store, but for one key of the examination's own, which lives for a second.
"""
