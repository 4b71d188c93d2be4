//! The few things that a new machine, or a sandbox, needs and that Rust cannot check.
#![allow(unsafe_code)] // unshare, borrowing inherited descriptors and code between fork and exec have no safe form.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::FdFlags;
use rustix::process::Signal;
use rustix::thread::UnshareFlags;

/// Puts this process into new namespaces.
pub fn unshare(flags: UnshareFlags) -> io::Result<()> {
    assert!(!flags.contains(UnshareFlags::FILES), "descriptors stay shared");
    // SAFETY: only unsharing the table of descriptors is unsafe, and that is ruled out above.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}

/// Sees to it that no descriptor beyond the standard ones reaches the next program.
pub fn close_all_on_exec() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if number > 2 {
            // SAFETY: the descriptor is used within this statement only, and changing its flags is
            // harmless even if it is another one by then; nothing else runs in this process.
            let result = rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC);
            match result {
                // The directory's own descriptor, which is gone by now in some orders.
                Ok(()) | Err(rustix::io::Errno::BADF) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Has `prepare` run in the child, between fork and exec.
///
/// Only for a process with a single thread, where the child may allocate and take locks.
pub fn prepare_child(
    command: &mut Command,
    prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> &mut Command {
    // SAFETY: with one thread in the parent, no lock is held by a thread that the child lacks.
    unsafe { command.pre_exec(prepare) }
}

/// The signal that tells systemd to halt the machine: `SIGRTMIN+3`.
pub(super) fn halt_signal() -> Signal {
    // The C library keeps the first two real-time signals, and systemd counts from behind them.
    const HALT: i32 = 34 + 3;
    // SAFETY: the number is a real-time signal, and it is only ever sent to another process.
    unsafe { Signal::from_raw_unchecked(HALT) }
}
