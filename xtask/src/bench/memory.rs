//! How much memory programs take.

use std::path::Path;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{interrupt, process};

/// How often a running program is looked at; the kernel keeps the peak, so only the very last growth
/// can be missed.
const LOOK: Duration = Duration::from_millis(4);

/// Waits for a program that must succeed, and returns the most memory that it had, in megabytes.
pub fn peak_until_end(mut child: Child) -> Result<f64> {
    let status = format!("/proc/{}/status", child.id());
    let mut peak: f64 = 0.0;
    loop {
        // Without memory once it has ended.
        if let Some(now) = std::fs::read_to_string(&status).ok().and_then(|text| field(&text, "VmHWM:")) {
            peak = peak.max(now);
        }
        if let Some(status) = child.try_wait().context("waiting for a program")? {
            if !status.success() {
                bail!("it failed ({status})");
            }
            return Ok(peak);
        }
        if interrupt::pending() {
            process::end(&mut child)?;
            bail!("interrupted");
        }
        std::thread::sleep(LOOK);
    }
}

/// The processes that run a program, and what they take together in megabytes; shared pages count in
/// parts.
pub fn running(program: &Path) -> Result<(usize, f64)> {
    let program = std::fs::canonicalize(program).with_context(|| format!("finding {}", program.display()))?;
    let (mut count, mut sum) = (0, 0.0);
    for entry in std::fs::read_dir("/proc").context("reading /proc")? {
        let dir = entry?.path();
        // A process may end while we look.
        if std::fs::read_link(dir.join("exe")).is_ok_and(|exe| exe == program) {
            count += 1;
            let text = std::fs::read_to_string(dir.join("smaps_rollup")).unwrap_or_default();
            sum += field(&text, "Pss:").unwrap_or_default();
        }
    }
    Ok((count, sum))
}

/// A field in kilobytes, as megabytes.
fn field(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kilobytes_become_megabytes() {
        assert_eq!(field("Name:\tx\nVmHWM:\t    2048 kB\n", "VmHWM:"), Some(2.0));
        assert_eq!(field("Name:\tx\n", "VmHWM:"), None);
    }
}
