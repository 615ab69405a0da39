"""How a schedule is made and changed by people and by code: one form, so that both meet the same checks."""
