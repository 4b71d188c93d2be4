//! Ctrl-C and SIGTERM: remembered, so that whoever waits stops and cleans up.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

static ASKED: AtomicBool = AtomicBool::new(false);
static CLEANING: AtomicBool = AtomicBool::new(false);

/// Begins to listen for signals.
pub fn listen() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("listening for signals")?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            let before = ASKED.swap(true, Ordering::SeqCst);
            eprintln!(
                "{}",
                if before { "cleaning up, a moment" } else { "interrupted: stopping and cleaning up" }
            );
        }
    });
    Ok(())
}

/// Whether to stop now.
pub fn pending() -> bool {
    asked() && !CLEANING.load(Ordering::SeqCst)
}

/// Whether somebody asked to stop at any time.
pub fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// Does work that an interrupt must not stop: cleaning up.
pub fn while_cleaning<T>(work: impl FnOnce() -> T) -> T {
    let before = CLEANING.swap(true, Ordering::SeqCst);
    let done = work();
    CLEANING.store(before, Ordering::SeqCst);
    done
}
