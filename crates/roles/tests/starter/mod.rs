//! The program that becomes a sandbox or a lab machine.

use std::{path::PathBuf, process::Command, sync::OnceLock};

/// The example program. `cargo test` builds it, `cargo test --test sandbox` does not.
pub fn starter() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "guywire-roles", "--example", "sandbox"]);
        // With what cargo tells tests about themselves, build scripts would believe that they changed.
        let told =
            ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "CARGO_PRIMARY_", "LD_LIBRARY_"];
        for (name, _) in std::env::vars().filter(|(name, _)| told.iter().any(|told| name.starts_with(told))) {
            cargo.env_remove(name);
        }
        let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        assert!(built.status.success(), "building the starter: {}", String::from_utf8_lossy(&built.stderr));
        let test = std::env::current_exe().unwrap();
        test.parent().unwrap().parent().unwrap().join("examples/sandbox")
    };
    BUILT.get_or_init(build).clone()
}
