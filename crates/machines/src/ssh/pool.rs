//! The connections of all machines, each shared by all who want something of that machine.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use super::{
    Door, KnownHosts, SshError, SshErrorKind,
    connection::{self, Connection, Slot},
};

/// How often a connection that was refused or broke at once is tried before the caller hears of it.
const TRIES: u32 = 3;
/// The pause after the first of them; it doubles.
const PAUSE: Duration = Duration::from_millis(150);
/// The longest that one try waits for a first packet while a machine starts. After a second the kernel
/// repeats its own, ever more rarely: a new try is sooner there.
const LONGEST_PATIENCE: Duration = Duration::from_secs(1);
/// How long a machine that starts may refuse to let us in: its keys may come later than its sshd.
const LET_IN: Duration = Duration::from_secs(15);

/// One connection per machine, opened when first needed and again when it broke. Cheap to clone.
///
/// Machines do not wait for each other: the lock over all of them is held for a look-up only, and each
/// has one of its own while it is being connected.
#[derive(Clone)]
pub struct Pool {
    known: KnownHosts,
    machines: Arc<Mutex<HashMap<String, Arc<Entry>>>>,
}

type Entry = tokio::sync::Mutex<Option<Arc<Connection>>>;

impl Pool {
    /// An empty one that checks host keys against `known`.
    pub fn new(known: KnownHosts) -> Self {
        Self { known, machines: Arc::default() }
    }

    /// The pinned host keys.
    pub fn known_hosts(&self) -> &KnownHosts {
        &self.known
    }

    /// Waits until the machine answers SSH and lets us in, and keeps that connection for later. A wrong
    /// host key or an unusable key of ours ends the wait at once.
    pub async fn wait_ready(&self, door: &Door, deadline: Duration) -> Result<(), SshError> {
        let start = Instant::now();
        let mut pause = Duration::from_millis(20);
        // A packet that was sent before the machine had a network is lost; the kernel would repeat it
        // after a second only, so the first tries give up early.
        let mut patience = Duration::from_millis(200);
        loop {
            let left = deadline.saturating_sub(start.elapsed());
            let error = match timeout(left, self.once(door, patience)).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => error,
                Err(_) => SshError::new(SshErrorKind::Unreachable, door, "the last try came to no end"),
            };
            let may_come =
                error.retry() || (error.kind == SshErrorKind::AuthFailed && start.elapsed() < LET_IN);
            if !may_come {
                return Err(error);
            }
            if start.elapsed() + pause >= deadline {
                let message = format!(
                    "not ready after {:.1} s; look at its console or raise the time",
                    start.elapsed().as_secs_f32()
                );
                return Err(SshError::new(error.kind, door, message).because(error));
            }
            if error.kind == SshErrorKind::AuthFailed {
                // Newer servers punish those who knock too often.
                pause = Duration::from_secs(1);
            }
            sleep(pause).await;
            pause = (pause * 5 / 4).min(Duration::from_millis(500));
            patience = (patience * 3 / 2).min(LONGEST_PATIENCE);
        }
    }

    /// Closes the connection to a machine that is going away.
    pub fn forget(&self, door: &Door) {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner).remove(&key(door));
    }

    /// A channel on the machine's connection.
    pub(super) async fn channel(&self, door: &Door, long: bool) -> Result<(Arc<Connection>, Slot), SshError> {
        let mut tried = 0;
        loop {
            tried += 1;
            let connection = self.connection(door).await?;
            match connection.channel(door, long).await {
                Ok(slot) => return Ok((connection, slot)),
                // It was broken before we asked, or commands that were given up and still run there use
                // up what sshd allows on it: nothing happened yet, a fresh one will do.
                Err(error)
                    if matches!(error.kind, SshErrorKind::Dropped | SshErrorKind::Protocol) && tried < 2 =>
                {
                    self.discard(door, &connection).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes a connection out that does not answer, so that nobody else waits for it.
    pub(super) async fn discard(&self, door: &Door, broken: &Arc<Connection>) {
        let entry = self.entry(door);
        let mut held = entry.lock().await;
        if held.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, broken)) {
            *held = None;
        }
    }

    async fn connection(&self, door: &Door) -> Result<Arc<Connection>, SshError> {
        let mut pause = PAUSE;
        for _ in 1..TRIES {
            match self.once(door, connection::CONNECT).await {
                // Silence has used up its time already; a refusal may be a restart of sshd.
                Err(error) if error.kind == SshErrorKind::Dropped || refused(&error) => sleep(pause).await,
                result => return result,
            }
            pause *= 2;
        }
        self.once(door, connection::CONNECT).await
    }

    async fn once(&self, door: &Door, first_packet: Duration) -> Result<Arc<Connection>, SshError> {
        let entry = self.entry(door);
        let mut held = entry.lock().await;
        if let Some(connection) = held.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(Arc::clone(connection));
        }
        *held = None;
        let connection = Connection::open(door, &self.known, first_packet).await?;
        *held = Some(Arc::clone(&connection));
        Ok(connection)
    }

    fn entry(&self, door: &Door) -> Arc<Entry> {
        let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(machines.entry(key(door)).or_default())
    }
}

fn key(door: &Door) -> String {
    format!("{}@{}@{}", door.user, door.machine, door.address())
}

fn refused(error: &SshError) -> bool {
    let cause = error.source.as_ref().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::ConnectionRefused)
}
