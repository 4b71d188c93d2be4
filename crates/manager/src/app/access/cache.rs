//! Who was let in a moment ago, so that each request costs no query of its own.

use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use jiff::Timestamp;

use super::Caller;

/// How long a revoked credential may still be heeded by another manager.
const TERM: Duration = Duration::from_secs(5);
/// More callers than that are asked for again: memory is bounded.
const MOST: usize = 4096;

#[derive(Default)]
pub(super) struct Cache {
    known: Mutex<HashMap<[u8; 32], Entry>>,
}

struct Entry {
    caller: Caller,
    until: Instant,
    expires: Option<Timestamp>,
}

impl Cache {
    pub fn get(&self, key: &[u8; 32]) -> Option<Caller> {
        let known = self.known.lock().expect("nobody panics while holding it");
        let entry = known.get(key)?;
        let live = entry.until > Instant::now() && entry.expires.is_none_or(|end| end > Timestamp::now());
        live.then(|| entry.caller.clone())
    }

    pub fn put(&self, key: [u8; 32], caller: Caller, expires: Option<Timestamp>) {
        let mut known = self.known.lock().expect("nobody panics while holding it");
        let now = Instant::now();
        if known.len() >= MOST {
            known.retain(|_, entry| entry.until > now);
        }
        if known.len() < MOST {
            known.insert(key, Entry { caller, until: now + TERM, expires });
        }
    }

    pub fn clear(&self) {
        self.known.lock().expect("nobody panics while holding it").clear();
    }
}
