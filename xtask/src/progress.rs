//! What a person sees: one line for each thing that happens, with the time since the start.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

static BEGIN: OnceLock<Instant> = OnceLock::new();

/// Starts the clock.
pub fn begin() {
    BEGIN.get_or_init(Instant::now);
}

/// The time since the start.
pub fn elapsed() -> Duration {
    BEGIN.get_or_init(Instant::now).elapsed()
}

/// Prints a line with the time.
pub fn say(line: impl AsRef<str>) {
    println!("[{:>6.1} s] {}", elapsed().as_secs_f64(), line.as_ref());
}
