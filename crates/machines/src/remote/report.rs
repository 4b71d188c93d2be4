//! What the wrapper says.

use guywire_plan::Fence;

use super::How;

/// The mark before the wrapper's own words on standard error.
const MARK: &str = "guywire-unit: ";

/// What becomes of a key on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitState {
    /// It was never started.
    None,
    /// The last attempt runs.
    Running {
        /// Which one.
        attempt: u32,
    },
    /// The last attempt ended.
    Ended {
        /// Which one.
        attempt: u32,
        /// Its exit code.
        code: i32,
    },
    /// The last attempt was cut off by a reboot or killed, and left no exit code.
    Lost {
        /// Which one.
        attempt: u32,
    },
}

/// How one call of the wrapper ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Report {
    /// The unit has ended.
    Exit { code: i32, stopped: bool, size: u64, seconds: u64 },
    /// It still runs; ask again.
    Running,
    /// It was cut off.
    Lost,
    /// A newer fence was seen.
    Fenced(Fence),
    /// Another attempt is there.
    Busy(u32),
    /// That attempt is not there.
    Unknown,
    /// The wrapper is not there.
    NoWrapper,
    /// A verb without more to say is done.
    Done,
    /// The answer to `status`.
    Status(Fence, UnitState),
    /// Anything else, in words.
    Trouble(String),
}

/// The wrapper's exit code when it is not on the machine at all.
pub(super) const NO_WRAPPER: i32 = 97;

impl Report {
    /// Reads the wrapper's exit code and standard error.
    pub(super) fn read(code: i32, stderr: &str) -> Self {
        let last = stderr.lines().rev().find_map(|line| line.strip_prefix(MARK)).unwrap_or_default();
        let words: Vec<&str> = last.split_whitespace().collect();
        let read = match (code, &words[..]) {
            (NO_WRAPPER, _) => Some(Self::NoWrapper),
            (0, ["exit", code, why, size, seconds]) => exit(code, why, size, seconds),
            (0, ["status", fence, attempt, found @ ..]) => status(fence, attempt, found),
            (0, _) => Some(Self::Done),
            (75, ["fenced", seen]) => seen.parse().ok().map(|seen| Self::Fenced(Fence(seen))),
            (76, _) => Some(Self::Lost),
            (77, _) => Some(Self::Running),
            (78, ["busy", other]) => other.parse().ok().map(Self::Busy),
            (79, _) => Some(Self::Unknown),
            (81, ["cannot", ..]) => Some(Self::Trouble(last.to_owned())),
            _ => None,
        };
        read.unwrap_or_else(|| {
            let said = stderr.trim_end().lines().next_back().unwrap_or_default();
            Self::Trouble(format!("the unit wrapper ended with code {code}: {said}"))
        })
    }

    /// Whether the wrapper started the attempt or found it there, if it came so far as to say.
    pub(super) fn how(stderr: &str) -> Option<How> {
        stderr.lines().find_map(|line| match line.strip_prefix(MARK) {
            Some("started") => Some(How::Ran),
            Some("reattached") => Some(How::Reattached),
            _ => None,
        })
    }
}

fn exit(code: &str, why: &str, size: &str, seconds: &str) -> Option<Report> {
    Some(Report::Exit {
        code: code.parse().ok()?,
        stopped: why == "stopped",
        size: size.parse().ok()?,
        // A clock that was set back in between gives a negative number.
        seconds: seconds.parse::<i64>().ok()?.try_into().unwrap_or(0),
    })
}

fn status(fence: &str, attempt: &str, found: &[&str]) -> Option<Report> {
    let attempt = attempt.parse().ok()?;
    let state = match found {
        ["none"] => UnitState::None,
        ["running"] => UnitState::Running { attempt },
        ["lost"] => UnitState::Lost { attempt },
        ["ended", code] => UnitState::Ended { attempt, code: code.parse().ok()? },
        _ => return None,
    };
    Some(Report::Status(Fence(fence.parse().ok()?), state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wrapper_s_words_are_read() {
        let exit = |code, stopped, size, seconds| Report::Exit { code, stopped, size, seconds };
        for (code, stderr, wanted) in [
            (0, "guywire-unit: started\nguywire-unit: exit 3 done 11 1\n", exit(3, false, 11, 1)),
            (0, "sudo: noise\nguywire-unit: exit 143 stopped 0 -5\n", exit(143, true, 0, 0)),
            (75, "guywire-unit: fenced 9\n", Report::Fenced(Fence(9))),
            (76, "guywire-unit: lost\n", Report::Lost),
            (77, "guywire-unit: started\n", Report::Running),
            (78, "guywire-unit: busy 2\n", Report::Busy(2)),
            (79, "guywire-unit: unknown\n", Report::Unknown),
            (97, "", Report::NoWrapper),
            (0, "guywire-unit: stopped\n", Report::Done),
            (0, "guywire-unit: status 5 0 none \n", Report::Status(Fence(5), UnitState::None)),
            (
                0,
                "guywire-unit: status 5 2 ended 7\n",
                Report::Status(Fence(5), UnitState::Ended { attempt: 2, code: 7 }),
            ),
            (81, "guywire-unit: cannot make /x\n", Report::Trouble("cannot make /x".into())),
            (
                127,
                "sudo: not found\n",
                Report::Trouble("the unit wrapper ended with code 127: sudo: not found".into()),
            ),
        ] {
            assert_eq!(Report::read(code, stderr), wanted, "{code} {stderr}");
        }
        assert_eq!(Report::how("noise\nguywire-unit: reattached\n"), Some(How::Reattached));
        assert_eq!(Report::how("guywire-unit: started\nguywire-unit: lost\n"), Some(How::Ran));
        assert_eq!(Report::how("guywire-unit: fenced 3\n"), None);
    }
}
