"""The Lua that the Redis backends run. A script is atomic on its server, so each verb is one exchange.

The value of a held key is ``<lease id>:<number>:<microseconds>:<holder>``. The lease id is 36 characters
long, so that "does it begin with mine" is an exact comparison. The number is the grant number with one
Redis and the id of the voting round with a quorum. Ownership is always compared and acted on in the same
script: a GET followed by a DEL would delete the key of a holder that came in between.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Script:
    """Lua source and the digest by which a server that has seen it runs it."""

    source: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)


# KEYS: lock, counter.  ARGV: lease id, ttl in ms, holder.
# Returns {1, grant number} if granted, {0, ''} if another holds it.
# The number is the server's clock in microseconds, or the last number + 1 if that is larger: a plain INCR
# would start again at 1 after the data were lost. %.0f because tostring() of such a number loses digits.
# The counter never expires.
ACQUIRE = Script("""
local current = redis.call('GET', KEYS[1])
if current then
  if string.sub(current, 1, #ARGV[1]) ~= ARGV[1] then return {0, ''} end
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  return {1, string.match(current, '^[^:]*:(%d+):')}
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
local number = string.format('%.0f', math.max(now, last + 1))
redis.call('SET', KEYS[2], number)
redis.call('SET', KEYS[1], ARGV[1]..':'..number..':'..string.format('%.0f', now)..':'..ARGV[3], 'PX', ARGV[2])
return {1, number}
""")

# KEYS: lock.  ARGV: lease id, ttl in ms.  Returns 1 if prolonged (never shortened), 0 if it is not ours any
# more.
RENEW = Script("""
local current = redis.call('GET', KEYS[1])
if not current or string.sub(current, 1, #ARGV[1]) ~= ARGV[1] then return 0 end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
""")

# KEYS: lock.  ARGV: what the value must begin with.  Returns 1 if it did and was deleted, else 0.
RELEASE = Script("""
local current = redis.call('GET', KEYS[1])
if not current or string.sub(current, 1, #ARGV[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
""")

# KEYS: lock.  Returns {value, ms left} or {}. A key of another kind has an empty value, which is no lease.
SHOW = Script("""
local current = redis.pcall('GET', KEYS[1])
if not current then return {} end
if type(current) == 'table' then
  if not string.find(current.err, 'WRONGTYPE', 1, true) then return current end
  current = ''
end
return {current, redis.call('PTTL', KEYS[1])}
""")

# Run-id quarantine. A quorum node that restarted may have forgotten votes it gave, and two holders could
# then both have a majority. So it may not vote until every lease it could have forgotten has ended. A
# marker key alone would not do: an old snapshot brings the marker back but not the recent locks. The run id
# is new on each start of the server, and missing or foreign after FLUSHALL or when a replica was promoted
# under the same address. Returns the ms until this node may vote, 0 if it may.
# The marker is <run id>:<ms since when this run is known>:<longest quarantine in ms that it has sat out>.
# When it was first seen, and not when it may vote: aliases whose leases live longer than others' ask the same
# node, and one that is through with the short quarantine says nothing about the long one. What was sat out is
# kept, so that a clock that is set back does not start it again.
_QUARANTINE = """
local time = redis.call('TIME')
local function quarantine_left(marker, quarantine)
  local info = redis.call('INFO', 'server')
  local _, colon = string.find(info, 'run_id:', 1, true)
  local run_id = string.sub(info, colon + 1, colon + 40)
  local known, since, sat = string.match(redis.call('GET', marker) or '', '^(%x+):(%d+):(%d+)$')
  if known == run_id and quarantine <= tonumber(sat) then return 0 end
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if known ~= run_id then
    redis.call('SET', marker, run_id..':'..string.format('%.0f', now)..':0')
    return quarantine
  end
  local left = since + quarantine - now
  if left > 0 then return left end
  redis.call('SET', marker, run_id..':'..since..':'..string.format('%.0f', quarantine))
  return 0
end
"""

# KEYS: lock, marker.  ARGV: lease id, ttl in ms, holder, round id, quarantine in ms.
# Returns 1 for a yes, {0, lease id of the holder} for a no, {-2, ms} if this node may not vote yet.
# A yes to the same lease id in a later round takes that round's id over, so that a late roll-back of the
# earlier round finds nothing to delete. On the way to a first yes no float is formatted: that took a seventh of the
# time of the script.
VOTE = Script(
    _QUARANTINE
    + """
local left = quarantine_left(KEYS[2], tonumber(ARGV[5]))
if left > 0 then return {-2, string.format('%.0f', left)} end
local current = redis.call('GET', KEYS[1])
local ttl = ARGV[2]
if current then
  if string.sub(current, 1, #ARGV[1]) ~= ARGV[1] then return {0, string.sub(current, 1, #ARGV[1])} end
  ttl = string.format('%.0f', math.max(tonumber(ttl), redis.call('PTTL', KEYS[1])))
end
local now = time[1]..string.sub('000000'..time[2], -6)
redis.call('SET', KEYS[1], ARGV[1]..':'..ARGV[4]..':'..now..':'..ARGV[3], 'PX', ttl)
return 1
"""
)

# KEYS: marker.  ARGV: quarantine in ms.  Returns the ms until this node may vote, and starts that clock.
PREPARE = Script(_QUARANTINE + "return quarantine_left(KEYS[1], tonumber(ARGV[1]))")
