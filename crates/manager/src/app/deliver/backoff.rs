//! How long to wait after a failure. No I/O.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(300);

/// How long a notification is tried.
pub(super) const PATIENCE: Duration = Duration::from_secs(86_400);

/// The pause after so many failures in a row: it doubles up to five minutes. `spread` from 0 to 1 takes up to a quarter
/// of it away, so that subscribers behind one broken link do not all come back at the same moment.
pub(super) fn pause(failures: i64, spread: f64) -> Duration {
    let doublings = u32::try_from(failures.saturating_sub(1).clamp(0, 16)).unwrap_or(0);
    let pause = FIRST.saturating_mul(1 << doublings).min(MOST);
    pause.mul_f64(1.0 - 0.25 * spread.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_five_minutes_and_is_spread() {
        let seconds = [(0, 1), (1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (17, 300), (i64::MAX, 300)];
        for (failures, expected) in seconds {
            assert_eq!(pause(failures, 0.0), Duration::from_secs(expected), "{failures}");
            assert_eq!(pause(failures, 1.0), Duration::from_secs(expected).mul_f64(0.75), "{failures}");
        }
    }
}
