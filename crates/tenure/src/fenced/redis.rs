//! Fenced writes to Redis: scripts that compare the token and write in one atomic step.

use tenure_backend::FencingToken;

/// The beginning of every fenced script: refuses an older token than the stored one, and stores the writer's.
///
/// Tokens are compared as text (first by length), because Lua's numbers are exact only below 2^53.
const CHECK: &str = "\
local token, newest = ARGV[1], redis.call('GET', KEYS[2]) or '0'
if #KEYS < 2 or not string.find(token or '', '^[1-9]%d*$') then
    return redis.error_reply('ERR a fenced write takes two keys, and the fencing token as first argument')
elseif #token < #newest or #token == #newest and token < newest then
    return redis.error_reply('STALE refused by fence: token ' .. newest .. ' has written')
end
redis.call('SET', KEYS[2], token)
";

/// The error for a key that cannot have a fence, because no name for the fence key is sure to be in its hash slot.
///
/// # Examples
/// ```
/// use tenure::fenced::RedisFence;
///
/// assert!(RedisFence::new("stock}").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key:?} cannot be fenced: it is empty, or has a `}}` without a hash tag such as {{stock}}")]
#[non_exhaustive]
pub struct InvalidRedisKey {
    /// The key.
    pub key: Box<str>,
}

/// A fence for the value of one Redis key: a second key holds the greatest [token](crate::Guard::token) that has
/// written the value, and writes with a smaller token are refused.
///
/// This module does not connect to Redis. It makes scripts and their arguments, for any client.
///
/// # Guarantees
/// - The script compares the tokens, stores the writer's token and writes the value in one atomic step. Once a token
///   has written, no smaller one can write by such a script.
/// - **Only for these scripts**: a plain `SET` or `DEL` is not refused.
/// - **Only while Redis keeps its data.** Without `appendfsync always`, a crash may lose the last second of writes; a
///   failover may lose writes that the replica did not have. Then an older token may write again.
/// - Both keys are in one hash slot, so the scripts run on Redis Cluster too.
/// - The fence key has no expiry. If you delete it, all tokens may write again. Deleting the value leaves the fence.
///
/// # Examples
/// ```
/// use tenure::FencingToken;
/// use tenure::fenced::RedisFence;
///
/// let stock = RedisFence::new("stock:42")?;
/// let token = FencingToken::new(7).unwrap(); // guard.token()
///
/// // With any client, for example redis-rs: redis::cmd("EVAL").arg(set.eval(token, ["17"])).query(&mut connection)
/// let set = stock.set();
/// let arguments = set.eval(token, ["17"]);
/// assert_eq!(arguments[1..], ["2", "stock:42", "{stock:42}:fence", "7", "17"].map(Vec::from));
///
/// // The error of a refused write:
/// let refused = "STALE refused by fence: token 8 has written";
/// let stale = tenure::fenced::Stale::in_error(refused).unwrap();
/// assert_eq!(stale.newest, FencingToken::new(8));
/// # Ok::<(), tenure::fenced::InvalidRedisKey>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisFence {
    keys: [Box<str>; 2],
}

impl RedisFence {
    /// A fence for the value at `key`.
    ///
    /// # Errors
    /// [`InvalidRedisKey`] if no name for the fence key is sure to be in the slot of `key`: `key` is empty, or has a `}` but no
    /// hash tag.
    pub fn new(key: &str) -> Result<Self, InvalidRedisKey> {
        let fence = if has_hash_tag(key) {
            format!("{key}:fence")
        } else if key.is_empty() || key.contains('}') {
            return Err(InvalidRedisKey { key: key.into() });
        } else {
            format!("{{{key}}}:fence")
        };
        Ok(RedisFence {
            keys: [key.into(), fence.into()],
        })
    }

    /// The key of the value and the key of its fence.
    pub fn keys(&self) -> [&str; 2] {
        self.keys.each_ref().map(|key| &**key)
    }

    /// `SET`. The values of [`RedisWrite::eval`] are the new value, and options such as `EX` and `60`.
    pub fn set(&self) -> RedisWrite {
        self.script("return redis.call('SET', KEYS[1], unpack(ARGV, 2))")
    }

    /// `HSET`. The values of [`RedisWrite::eval`] are names of fields, each followed by its value.
    pub fn hset(&self) -> RedisWrite {
        self.script("return redis.call('HSET', KEYS[1], unpack(ARGV, 2))")
    }

    /// A write of your own, in Lua. `KEYS[1]` is the key of the value, and `ARGV[2]` is the first value of
    /// [`RedisWrite::eval`]. `lua` runs only if no newer token has written.
    ///
    /// If `lua` fails, its earlier writes stay, and so does the token.
    pub fn script(&self, lua: &str) -> RedisWrite {
        RedisWrite {
            source: format!("{CHECK}{lua}\n"),
            keys: self.keys.clone(),
        }
    }
}

/// A fenced write: the source of its script, and its keys. It contains no values and can be reused.
///
/// # Examples
/// ```
/// use tenure::FencingToken;
/// use tenure::fenced::RedisFence;
///
/// let take_one = RedisFence::new("stock:42")?.script("return redis.call('DECRBY', KEYS[1], ARGV[2])");
/// let token = FencingToken::new(7).unwrap();
/// assert_eq!(take_one.eval(token, ["1"])[0], take_one.source().as_bytes());
/// # Ok::<(), tenure::fenced::InvalidRedisKey>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisWrite {
    source: String,
    keys: [Box<str>; 2],
}

impl RedisWrite {
    /// The source of the script, for `SCRIPT LOAD`.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The arguments of `EVAL`: the source, the number of keys, the keys, the token and the values.
    pub fn eval<V: AsRef<[u8]>>(
        &self,
        token: FencingToken,
        values: impl IntoIterator<Item = V>,
    ) -> Vec<Vec<u8>> {
        let [value, fence] = &self.keys;
        let token = token.to_string();
        let fixed = [&*self.source, "2", value, fence, &token].map(|text| text.as_bytes().to_vec());
        let values = values.into_iter().map(|value| value.as_ref().to_vec());
        fixed.into_iter().chain(values).collect()
    }
}

/// Returns true if Redis Cluster hashes only the part of the key between the first `{` and the next `}`. Cluster hashes
/// the whole key if that part is empty or missing.
fn has_hash_tag(key: &str) -> bool {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    tag.is_some_and(|(tag, _)| !tag.is_empty())
}
