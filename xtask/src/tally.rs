//! Reading the lines in which test programs sum up.

use std::ops::AddAssign;

/// What `test result:` lines say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that were not asked for.
    pub ignored: u64,
}

impl Tally {
    /// Adds what a line says, if it sums up.
    pub fn read(&mut self, line: &str) {
        if let Some(tally) = parse(line) {
            *self += tally;
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

fn parse(line: &str) -> Option<Tally> {
    let (_, counts) = line.trim().strip_prefix("test result: ")?.split_once(". ")?;
    let mut tally = Tally::default();
    for part in counts.split("; ") {
        let (number, what) = part.split_once(' ')?;
        let field = match what {
            "passed" => &mut tally.passed,
            "failed" => &mut tally.failed,
            "ignored" => &mut tally.ignored,
            _ => continue,
        };
        *field = number.parse().ok()?;
    }
    Some(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 4 filtered out; finished in 1s",
            "test result: nonsense",
        ] {
            tally.read(line);
        }
        assert_eq!(tally, Tally { passed: 9, failed: 3, ignored: 1 });
    }
}
