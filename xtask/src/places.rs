//! Where things are: the checkout, what it builds, and what outlives a run.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The checkout.
pub fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}

/// Where cargo builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// What tests leave to be looked at: screenshots.
pub fn artifacts() -> PathBuf {
    target().join("artifacts")
}

/// The program as `cargo build` makes it.
pub fn debug_guywire() -> PathBuf {
    target().join("debug/guywire")
}

/// The program as `cargo build --release` makes it.
pub fn release_guywire() -> PathBuf {
    target().join("release/guywire")
}

/// What is worth keeping between runs and checkouts: templates, tools.
pub fn cache() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = cache.or_else(home).context("neither XDG_CACHE_HOME nor HOME is set: set one of them")?;
    Ok(cache.join("guywire"))
}

/// The templates that tests and benchmarks share; making one takes a minute.
pub fn templates() -> Result<PathBuf> {
    Ok(std::env::var_os("GUYWIRE_TEMPLATES").map_or(cache()?.join("templates"), PathBuf::from))
}

/// Everything that tests of this checkout make; short, as sockets live in it.
pub fn test_dir() -> Result<PathBuf> {
    Ok(cache()?.join(format!("test-{}", short_name(&root()))))
}

/// A directory that another user may reach, which a home directory does not allow.
pub fn postgres_dir() -> PathBuf {
    std::env::temp_dir().join(format!("guywire-postgres-{}", short_name(&root())))
}

/// Eight digits that stand for a path, so that two checkouts do not meet.
fn short_name(path: &Path) -> String {
    fnv(path.as_os_str().as_encoded_bytes())
}

/// Eight digits that stand for some bytes (FNV-1a).
pub fn fnv(bytes: &[u8]) -> String {
    let fold = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(16_777_619);
    format!("{:08x}", bytes.iter().fold(2_166_136_261, fold))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkouts_do_not_meet() {
        assert_eq!(short_name(Path::new("a")), "e40c292c");
        assert_ne!(short_name(Path::new("/src/one")), short_name(Path::new("/src/two")));
    }
}
