//! Failed attempts, counted by address: who guesses waits longer and longer for each answer.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Mutex,
    time::{Duration, Instant},
};

/// A person who mistypes, or a client with an old token, is not slowed.
const FREE: u32 = 10;
/// Each further failure waits that much longer.
const STEP: Duration = Duration::from_millis(100);
/// The longest wait: a waiting request costs us memory too.
const LONGEST: Duration = Duration::from_secs(1);
/// After that long without a failure all is forgotten.
const FORGET: Duration = Duration::from_secs(60);
/// More addresses than that are not counted: memory is bounded, and secrets cannot be guessed anyway.
const MOST: usize = 4096;

/// Failures by address.
#[derive(Default)]
pub struct Slow {
    failures: Mutex<HashMap<IpAddr, (u32, Instant)>>,
}

impl Slow {
    /// Counts a failure; how long the answer should wait.
    pub fn failed(&self, address: IpAddr) -> Duration {
        self.failed_at(address, Instant::now())
    }

    fn failed_at(&self, address: IpAddr, now: Instant) -> Duration {
        let mut failures = self.failures.lock().expect("nobody panics while holding it");
        if failures.len() >= MOST && !failures.contains_key(&address) {
            failures.retain(|_, (_, last)| now.duration_since(*last) < FORGET);
            if failures.len() >= MOST {
                return LONGEST;
            }
        }
        let entry = failures.entry(address).or_insert((0, now));
        if now.duration_since(entry.1) >= FORGET {
            entry.0 = 0;
        }
        *entry = (entry.0.saturating_add(1), now);
        (STEP * entry.0.saturating_sub(FREE)).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guessing_gets_slower_and_is_forgotten() {
        let slow = Slow::default();
        let (now, here) = (Instant::now(), IpAddr::from([10, 0, 0, 1]));
        for _ in 0..FREE {
            assert_eq!(slow.failed_at(here, now), Duration::ZERO);
        }
        assert_eq!(slow.failed_at(here, now), STEP);
        assert_eq!(slow.failed_at(here, now), STEP * 2);
        for _ in 0..100 {
            slow.failed_at(here, now);
        }
        assert_eq!(slow.failed_at(here, now), LONGEST);
        assert_eq!(slow.failed_at(IpAddr::from([10, 0, 0, 2]), now), Duration::ZERO, "others are not slowed");
        assert_eq!(slow.failed_at(here, now + FORGET), Duration::ZERO);
    }

    #[test]
    fn the_map_does_not_grow_without_bound() {
        let slow = Slow::default();
        let now = Instant::now();
        for number in 0..u32::try_from(MOST).expect("small") * 2 {
            slow.failed_at(IpAddr::from(number.to_be_bytes()), now);
        }
        assert_eq!(slow.failures.lock().expect("not poisoned").len(), MOST);
    }
}
