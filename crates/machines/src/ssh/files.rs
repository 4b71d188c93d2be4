//! Files to and from machines.

use std::time::Duration;

use bytes::Bytes;

use super::{Door, ExecRequest, Pool, SshError, SshErrorKind};

/// The temporary file is in the same directory, so that the rename is one step; it counts its bytes,
/// since a broken connection looks like the end of the content.
const PUSH: &str = r#"set -eu
path=$1 mode=$2 owner=$3 size=$4
dir=${path%/*}; dir=${dir:-/}
mkdir -p -- "$dir"
new=$(mktemp -- "$dir/.guywire.XXXXXXXX")
trap 'rm -f -- "$new"' EXIT
trap 'exit 1' HUP INT TERM PIPE
cat > "$new"
[ "$(stat -c %s -- "$new")" = "$size" ] || { echo "content cut short" >&2; exit 1; }
chown -- "$owner" "$new"
chmod -- "$mode" "$new"
sync -- "$new"
mv -fT -- "$new" "$path"
sync -- "$dir""#;

/// The slowest link that a file is pushed over, in bytes per second, to bound its time.
const SLOWEST: u64 = 256 * 1024;

/// Who may do what with a pushed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMode {
    /// The permission bits.
    pub mode: u32,
    /// The owner as `chown` takes it, such as `root:root`.
    pub owner: String,
}

impl FileMode {
    /// Root's, with these bits.
    pub fn root(mode: u32) -> Self {
        Self { mode, owner: "root:root".into() }
    }
}

impl Pool {
    /// Puts a file on the machine in the place of an older one: whoever looks sees the old or the new,
    /// also after a power cut. Missing directories are made. The content is on no command line.
    pub async fn push_file(
        &self,
        door: &Door,
        path: &str,
        content: impl Into<Bytes>,
        mode: &FileMode,
    ) -> Result<(), SshError> {
        check(door, path)?;
        let content = content.into();
        let size = content.len() as u64;
        let words = [
            "/bin/sh",
            "-c",
            PUSH,
            "push",
            path,
            &format!("{:o}", mode.mode),
            &mode.owner,
            &size.to_string(),
        ];
        let request =
            ExecRequest::argv(words).stdin(content).timeout(Duration::from_secs(60 + size / SLOWEST));
        let output = self.exec(door, request).await?;
        if output.code == 0 {
            return Ok(());
        }
        let message = format!("cannot write {path}: {}", output.stderr_text());
        Err(SshError::new(SshErrorKind::Remote, door, message))
    }

    /// Reads a file of at most `max` bytes.
    pub async fn fetch_file(&self, door: &Door, path: &str, max: usize) -> Result<Vec<u8>, SshError> {
        check(door, path)?;
        let words = ["head", "-c", &(max as u64 + 1).to_string(), "--", path];
        let request = ExecRequest::argv(words)
            .max_output(max.saturating_add(1))
            .timeout(Duration::from_secs(60 + max as u64 / SLOWEST));
        let output = self.exec(door, request).await?;
        if output.code != 0 {
            let message = format!("cannot read {path}: {}", output.stderr_text());
            return Err(SshError::new(SshErrorKind::Remote, door, message));
        }
        if output.stdout.len() > max {
            let message = format!("{path} has more than the {max} bytes that were expected");
            return Err(SshError::new(SshErrorKind::Remote, door, message));
        }
        Ok(output.stdout)
    }
}

fn check(door: &Door, path: &str) -> Result<(), SshError> {
    if path.starts_with('/') && !path.ends_with('/') && !path.split('/').any(|part| part == "..") {
        return Ok(());
    }
    let message = format!("{path:?} is not an absolute path of a file; begin it with / and leave out ..");
    Err(SshError::new(SshErrorKind::Invalid, door, message))
}
