"""Triggers that follow edits, and the index of the due query."""

from __future__ import annotations

from django.db import migrations

# Edits of what decides fire times: the row is due at once, to be computed, and nothing before the edit counts.
#
# A fire time that had passed when the edit came, and that no beat had stored yet, does not vanish: it becomes a
# misfired tick. Timeline: due at 02:00:00.000; somebody saves the row at 02:00:00.050; the beat comes at .100.
FOLLOW_EDITS = """
CREATE FUNCTION aegis_scheduler_note_unstored(s aegis_scheduler_schedule) RETURNS void LANGUAGE sql AS $$
    INSERT INTO aegis_scheduler_tick (
        schedule_id, schedule_name, revision, fire_time, task, args, kwargs, queue, priority, delivery, lock_name,
        lock_alias, ttl, once_per_tick, grace, max_attempts, state, outcome, reason, attempt, retries, copies,
        dispatch_at, deadline, closed_at, through, missed_count)
    SELECT s.id, s.name, s.revision, s.next_fire_at, s.task, s.args, s.kwargs, s.queue, s.priority, s.delivery,
           n.name, coalesce(nullif(n.alias_in_force, ''), n.alias_wanted), coalesce(s.ttl, 1), s.once_per_tick,
           s.misfire_grace, s.max_attempts, 'misfired', 'misfired', 'the schedule was edited before a beat stored it',
           1, 0, 0, clock_timestamp(), clock_timestamp(), clock_timestamp(), clock_timestamp(), 1
    FROM aegis_scheduler_lockname n
    WHERE n.name = s.lock_id AND s.enabled AND NOT s.exhausted AND s.paused_at IS NULL AND s.broken_reason = ''
      AND s.next_fire_at <= clock_timestamp()
    ON CONFLICT DO NOTHING
$$;
CREATE FUNCTION aegis_scheduler_follow_edit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.activated_at := clock_timestamp();
        NEW.next_fire_at := NULL;
        NEW.exhausted := false;
    ELSIF (NEW.cron_expression, NEW.time_zone, NEW.every_seconds, NEW.anchor, NEW.once_at, NEW.start_at,
           NEW.end_at, NEW.enabled, NEW.paused_at, NEW.paused_until)
        IS DISTINCT FROM
          (OLD.cron_expression, OLD.time_zone, OLD.every_seconds, OLD.anchor, OLD.once_at, OLD.start_at,
           OLD.end_at, OLD.enabled, OLD.paused_at, OLD.paused_until) THEN
        PERFORM aegis_scheduler_note_unstored(OLD);
        NEW.revision := OLD.revision + 1;
        NEW.activated_at := clock_timestamp();
        NEW.next_fire_at := NULL;
        NEW.exhausted := false;
        NEW.broken_reason := '';
    ELSIF NEW.task IS DISTINCT FROM OLD.task OR NEW.lock_id IS DISTINCT FROM OLD.lock_id THEN
        NEW.revision := OLD.revision + 1;
        NEW.broken_reason := '';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER aegis_scheduler_follow_edit BEFORE INSERT OR UPDATE ON aegis_scheduler_schedule
    FOR EACH ROW EXECUTE FUNCTION aegis_scheduler_follow_edit();
"""
UNFOLLOW_EDITS = """
DROP TRIGGER aegis_scheduler_follow_edit ON aegis_scheduler_schedule;
DROP FUNCTION aegis_scheduler_follow_edit();
DROP FUNCTION aegis_scheduler_note_unstored(aegis_scheduler_schedule);
"""

# A lock name without a fence row could start nothing, so both are made together, however the name is stored.
SEED_FENCE = """
CREATE FUNCTION aegis_scheduler_seed_fence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO aegis_locks_fence (name) VALUES (NEW.name) ON CONFLICT (name) DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER aegis_scheduler_seed_fence AFTER INSERT ON aegis_scheduler_lockname
    FOR EACH ROW EXECUTE FUNCTION aegis_scheduler_seed_fence();
"""
UNSEED_FENCE = """
DROP TRIGGER aegis_scheduler_seed_fence ON aegis_scheduler_lockname;
DROP FUNCTION aegis_scheduler_seed_fence();
"""

# The expression of the due query: a row without a next fire time is due at once.
DUE_INDEX = """
CREATE INDEX aegis_schedule_due ON aegis_scheduler_schedule (coalesce(next_fire_at, 'epoch'::timestamptz))
    WHERE enabled AND NOT exhausted AND broken_reason = '';
"""


class Migration(migrations.Migration):
    dependencies = [("aegis_scheduler", "0001_initial"), ("aegis_locks", "0001_initial")]

    operations = [
        migrations.RunSQL(FOLLOW_EDITS, UNFOLLOW_EDITS),
        migrations.RunSQL(SEED_FENCE, UNSEED_FENCE),
        migrations.RunSQL(DUE_INDEX, "DROP INDEX aegis_schedule_due"),
    ]
