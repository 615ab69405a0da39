"""Every state change as one guarded SQL statement, each run on the process's own autocommit connection.

One statement is one transaction, so a crash leaves either all of it or nothing; the guard in its WHERE clause is
the state machine; the row that it returns is the proof that the move happened. Stamps are ``clock_timestamp()``:
unlike ``now()`` and ``statement_timestamp()`` it moves on while a statement waits for a row lock. Only searches
over a range compare with ``statement_timestamp()``, because a volatile value cannot use an index.
"""
