"""Numbers that never go back, and the trigger function behind ``locks.operations.GuardTable``."""

from __future__ import annotations

from django.db import migrations

# The next grant number or fencing token: one sequence for all names, above everything that an earlier timeline
# of this cluster can have given out.
#
# A standby that is promoted may not have received the last numbers of its primary, and its sequence would give
# them out again. Promotion begins a new timeline, whose number is read here from the name of the write-ahead log
# file, which shows it at once (pg_control_checkpoint() would show it after the next checkpoint only). The first
# timeline adds nothing, so that the numbers of a cluster that never failed over stay short.
NUMBERS = """
CREATE FUNCTION aegis_locks_next_token() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT ((('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint - 1) << 40)
           + nextval('aegis_locks_token')
$$
"""

# Fired once for each statement that writes to a guarded table, whoever sends it. It proves the token again, with
# the row lock that holds a later start back until the transaction ends; so the settings alone are worth nothing.
# Argument: the lock name that the table asks for; none: any.
GUARD_TABLE = """
CREATE FUNCTION aegis_locks_guard_table() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    proven text := nullif(current_setting('aegis.name', true), '');
BEGIN
    IF current_setting('aegis.maintenance', true) = 'on'
       AND pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE') THEN
        RETURN NULL;
    END IF;
    IF proven IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'AE001',
            MESSAGE = format('%s on guarded table %I: no fencing token was proven in this transaction',
                             TG_OP, TG_TABLE_NAME),
            HINT = 'Write inside context.commit_guard() or locks.fence(); for maintenance see GuardTable.';
    END IF;
    IF TG_NARGS > 0 AND proven <> TG_ARGV[0] THEN
        RAISE EXCEPTION USING ERRCODE = 'AE001',
            MESSAGE = format('%s on guarded table %I: it asks for lock name %L, proven was %L',
                             TG_OP, TG_TABLE_NAME, TG_ARGV[0], proven),
            HINT = 'Hold the lock name that GuardTable names for this table.';
    END IF;
    PERFORM 1 FROM aegis_locks_fence
    WHERE name = proven AND token = current_setting('aegis.token')::bigint
      AND lease_id = current_setting('aegis.lease_id')::uuid
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'AE002',
            MESSAGE = format('%s on guarded table %I: fencing token %s of lock name %L is stale',
                             TG_OP, TG_TABLE_NAME, current_setting('aegis.token'), proven),
            HINT = 'A later holder has started: stop, and let it do the work.';
    END IF;
    RETURN NULL;
END $$
"""


class Migration(migrations.Migration):
    dependencies = [("aegis_locks", "0002_session_locks")]

    operations = [
        migrations.RunSQL(NUMBERS, "DROP FUNCTION aegis_locks_next_token()"),
        migrations.RunSQL(GUARD_TABLE, "DROP FUNCTION aegis_locks_guard_table()"),
    ]
