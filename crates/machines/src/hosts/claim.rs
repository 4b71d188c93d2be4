//! The file on a host that says whose it is.

use guywire_model::MachineSpec;
use guywire_plan::Fence;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::ssh::{Door, ExecRequest, Pool, SshError, SshErrorKind};

/// Where it is.
pub(super) const FILE: &str = "/var/lib/guywire/claim.json";
/// The most that we expect in it.
const MAX: usize = 256 * 1024;

/// Prints the claim, if there is one.
const READ: &str = r#"[ ! -e "$1" ] || cat -- "$1""#;

/// Replaces the claim if it is still the one that was read, whose hash comes as the second word; `-` is
/// none. The new one is on standard input and its size is the third word; nothing removes it.
const SWAP: &str = r#"set -eu
umask 077
file=$1 known=$2 size=$3
mkdir -p "${file%/*}" /run/guywire
new=$(mktemp "$file.XXXXXX")
trap 'rm -f "$new"' EXIT
cat > "$new"
[ "$(stat -c %s "$new")" = "$size" ] || { echo "claim cut short" >&2; exit 1; }
exec 9> /run/guywire/claim.lock
flock -w 30 9
have=-
[ ! -e "$file" ] || have=$(sha256sum < "$file" | cut -c 1-64)
[ "$have" = "$known" ] || exit 3
sync "$new"
if [ "$size" -gt 0 ]; then mv -f "$new" "$file"; else rm -f "$file"; fi
sync "${file%/*}""#;

/// Stops what runs for us and removes what we put there, all but the claim.
const CLEAN: &str = r"set -eu
systemctl stop 'guywire-unit-*.service'
rm -rf /var/lib/guywire/units /usr/local/lib/guywire
cd /run/guywire 2> /dev/null && find . -mindepth 1 ! -name claim.lock -delete || true";

/// Whose a host is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    /// The installation's name.
    pub(super) installation: String,
    /// The highest fence that changed it.
    pub(super) fence: Fence,
    /// The machine that the host is.
    pub(super) machine: MachineSpec,
}

/// A claim as it was read.
pub(super) struct Found {
    /// What it says.
    pub(super) claim: Option<Claim>,
    text: Vec<u8>,
}

/// Reads the host's claim.
pub(super) async fn read(pool: &Pool, door: &Door) -> Result<Found, SshError> {
    let request = ExecRequest::argv(["/bin/sh", "-c", READ, "read", FILE]).max_output(MAX);
    let output = pool.exec(door, request).await?;
    if output.code != 0 {
        let message = format!("cannot read {FILE}: {}", output.stderr_text());
        return Err(SshError::new(SshErrorKind::Remote, door, message));
    }
    let text = output.stdout;
    if text.is_empty() {
        return Ok(Found { claim: None, text });
    }
    let claim = serde_json::from_slice(&text).map_err(|error| {
        let message = format!(
            "{FILE} there is no claim that we can read; if nobody else uses the host, remove it, else use the newer guywire"
        );
        SshError::new(SshErrorKind::Invalid, door, message).because(error)
    })?;
    Ok(Found { claim: Some(claim), text })
}

/// Puts `claim` in the place of what was found; false if that has changed since.
pub(super) async fn swap(
    pool: &Pool,
    door: &Door,
    found: &Found,
    claim: Option<&Claim>,
) -> Result<bool, SshError> {
    let known = if found.text.is_empty() { "-".to_owned() } else { format!("{:x}", HexOf(&found.text)) };
    let content = match claim {
        Some(claim) => serde_json::to_vec_pretty(claim).map_err(|error| {
            SshError::new(SshErrorKind::Invalid, door, "its machine cannot be written down").because(error)
        })?,
        None => Vec::new(),
    };
    let size = content.len().to_string();
    let request = ExecRequest::argv(["/bin/sh", "-c", SWAP, "swap", FILE, &known, &size]).stdin(content);
    let output = pool.exec(door, request).await?;
    match output.code {
        0 => Ok(true),
        3 => Ok(false),
        code => {
            let message = format!("cannot write {FILE} (code {code}): {}", output.stderr_text());
            Err(SshError::new(SshErrorKind::Remote, door, message))
        }
    }
}

/// Leaves the host as it was before us, but for the claim.
pub(super) async fn clean(pool: &Pool, door: &Door) -> Result<(), SshError> {
    let output = pool.exec(door, ExecRequest::script(CLEAN)).await?;
    if output.code == 0 {
        return Ok(());
    }
    let message = format!("cannot remove what was put there: {}", output.stderr_text());
    Err(SshError::new(SshErrorKind::Remote, door, message))
}

/// The SHA-256 of bytes, as `sha256sum` writes it.
struct HexOf<'a>(&'a [u8]);

impl std::fmt::LowerHex for HexOf<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Sha256::digest(self.0).iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
