//! One connection to one machine: reached, checked and let in.

use std::{
    borrow::Cow,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    time::Duration,
};

use russh::{
    Channel, MethodKind, Preferred,
    client::{self, AuthResult, Handle, KeyboardInteractiveAuthResponse, Msg},
    keys::{PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate},
};
use tokio::{
    net::TcpStream,
    sync::{Semaphore, oneshot},
    time::timeout,
};

use super::{Auth, Door, KnownHosts, SshError, SshErrorKind};

/// How long a machine may take to answer the first packet.
pub(super) const CONNECT: Duration = Duration::from_secs(5);
/// How long it may take from there until we are in; a machine that boots is slow at this.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// How long an open connection may take to open another channel.
const OPEN: Duration = Duration::from_secs(10);
/// A machine whose power was cut is noticed after `(KEEPALIVE_MAX + 1) * KEEPALIVE`.
const KEEPALIVE: Duration = Duration::from_secs(2);
const KEEPALIVE_MAX: usize = 3;
/// What `sshd` allows on one connection is 10 by default (`MaxSessions`).
const CHANNELS: usize = 9;
/// When a server that opens no channel is taken at its word.
const LAST_PAUSE: Duration = Duration::from_millis(320);
/// Of those, how many may wait for output for long, so that others always get their turn.
const LONG_CHANNELS: usize = 6;

/// An authenticated connection. Dropping the last use of it closes it.
pub(super) struct Connection {
    handle: Handle<Checker>,
    socket: OwnedFd,
    channels: Arc<Semaphore>,
    long_channels: Arc<Semaphore>,
}

/// A channel and its place among those that the connection may have.
pub(super) struct Slot {
    pub(super) channel: Channel<Msg>,
    pub(super) permits: Vec<tokio::sync::OwnedSemaphorePermit>,
}

impl Connection {
    /// Reaches the machine, checks its key and logs in. `first_packet` bounds the time until something
    /// answers at all.
    pub(super) async fn open(
        door: &Door,
        known: &KnownHosts,
        first_packet: Duration,
    ) -> Result<Arc<Self>, SshError> {
        let private_key = door.private_key()?;
        let expected = known.expected(door)?;
        let stream = reach(door, first_packet).await?;
        let socket = stream.as_fd().try_clone_to_owned().map_err(|error| dropped(door).because(error))?;
        let checker = Checker { door: door.clone(), known: known.clone() };
        let config = Arc::new(configure(expected.as_ref()));
        let entering = async {
            let mut handle =
                client::connect_stream(config, stream, checker).await.map_err(|error| error.at(door))?;
            log_in(door, &mut handle, private_key).await?;
            Ok(handle)
        };
        let handle = timeout(HANDSHAKE, entering).await.map_err(|_| {
            let message = format!(
                "it accepted the connection and then said nothing for {} s; look at the load and at sshd there",
                HANDSHAKE.as_secs()
            );
            SshError::new(SshErrorKind::Unreachable, door, message)
        })??;
        Ok(Arc::new(Self {
            handle,
            socket,
            channels: Arc::new(Semaphore::new(CHANNELS)),
            long_channels: Arc::new(Semaphore::new(LONG_CHANNELS)),
        }))
    }

    /// Whether it can no longer be used.
    pub(super) fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Whether the other side answers within `patience`.
    pub(super) async fn ping(&self, patience: Duration) -> bool {
        matches!(timeout(patience, self.handle.send_ping()).await, Ok(Ok(())))
    }

    /// Another channel on this connection, when one is free. `long` ones wait among themselves.
    pub(super) async fn channel(self: &Arc<Self>, door: &Door, long: bool) -> Result<Slot, SshError> {
        let mut permits = Vec::new();
        for semaphore in long.then_some(&self.long_channels).into_iter().chain([&self.channels]) {
            permits.push(Arc::clone(semaphore).acquire_owned().await.expect("never closed"));
        }
        let mut pause = Duration::from_millis(20);
        loop {
            match self.open_channel(door).await {
                // A server may need a moment to count a channel as closed that we have seen closing.
                Err(error) if error.kind == SshErrorKind::Protocol && pause < LAST_PAUSE => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                result => return result.map(|channel| Slot { channel, permits }),
            }
        }
    }

    async fn open_channel(self: &Arc<Self>, door: &Door) -> Result<Channel<Msg>, SshError> {
        // In a task of its own, so that a caller who goes away in the middle leaves no channel behind
        // that nobody closes.
        let (sender, receiver) = oneshot::channel();
        let connection = Arc::clone(self);
        tokio::spawn(async move {
            let opened = timeout(OPEN, connection.handle.channel_open_session()).await;
            if let Err(Ok(Ok(channel))) = sender.send(opened)
                && let Err(error) = channel.close().await
            {
                tracing::debug!(%error, "a channel that nobody waits for did not close");
            }
        });
        match receiver.await {
            Ok(Ok(Ok(channel))) => Ok(channel),
            Ok(Ok(Err(error @ russh::Error::ChannelOpenFailure(_)))) => {
                let message = "it opens no more channels; raise MaxSessions in its sshd_config to 10 or more";
                Err(SshError::new(SshErrorKind::Protocol, door, message).because(error))
            }
            Ok(Ok(Err(error))) => Err(dropped(door).because(error)),
            Ok(Err(_)) | Err(_) => Err(dropped(door)),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The library waits for as long as the other side takes no data; this wakes it up.
        if let Err(error) = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both) {
            tracing::debug!(%error, "the connection had ended already");
        }
    }
}

/// The connection ended: nothing of the kind that a person could mend.
pub(super) fn dropped(door: &Door) -> SshError {
    let message = "the connection ended in the middle; look whether the machine still runs";
    SshError::new(SshErrorKind::Dropped, door, message)
}

async fn reach(door: &Door, first_packet: Duration) -> Result<TcpStream, SshError> {
    let unreachable = |what: &str| {
        let message = format!("{what}; check that the machine runs, the address and the way to it");
        SshError::new(SshErrorKind::Unreachable, door, message)
    };
    let stream = timeout(first_packet, TcpStream::connect((door.host.as_str(), door.port)))
        .await
        .map_err(|_| unreachable(&format!("no answer within {:.1} s", first_packet.as_secs_f32())))?
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::ConnectionRefused => unreachable("no SSH server at this port").because(error),
            _ => unreachable("cannot connect").because(error),
        })?;
    let options = stream.set_nodelay(true).and_then(|()| {
        // Keepalives wait behind data that the other side does not take; this does not.
        let bound = u32::try_from(KEEPALIVE.as_millis()).unwrap_or(u32::MAX) * 5;
        Ok(rustix::net::sockopt::set_tcp_user_timeout(&stream, bound)?)
    });
    options.map_err(|error| unreachable("the connection broke at once").because(error))?;
    Ok(stream)
}

fn configure(expected: Option<&PublicKey>) -> client::Config {
    let mut preferred = Preferred::default();
    if let Some(key) = expected {
        // A machine with several host keys must show the one that we know.
        preferred.key = Cow::Owned(vec![key.algorithm()]);
    }
    client::Config {
        preferred,
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: KEEPALIVE_MAX,
        nodelay: true,
        ..client::Config::default()
    }
}

async fn log_in(
    door: &Door,
    handle: &mut Handle<Checker>,
    private_key: Option<russh::keys::PrivateKey>,
) -> Result<(), SshError> {
    let broken = |error: russh::Error| dropped(door).because(error);
    let result = match (&door.auth, private_key) {
        (Auth::Password(password), _) => {
            let Some(password) = password.expose_str() else {
                let message = "its password is not text; set it again in the secrets store";
                return Err(SshError::new(SshErrorKind::Invalid, door, message));
            };
            match handle.authenticate_password(&door.user, password).await.map_err(broken)? {
                // Many servers take passwords through PAM's questions only.
                AuthResult::Failure { remaining_methods, .. }
                    if remaining_methods.contains(&MethodKind::KeyboardInteractive) =>
                {
                    answer_questions(door, handle, password).await?
                }
                result => result,
            }
        }
        (_, Some(key)) => {
            let key = PrivateKeyWithHashAlg::new(Arc::new(key), None);
            handle.authenticate_publickey(&door.user, key).await.map_err(broken)?
        }
        (_, None) => unreachable!("every key was loaded before"),
    };
    if result.success() {
        return Ok(());
    }
    if handle.is_closed() {
        return Err(dropped(door));
    }
    let (what, advice) = match &door.auth {
        Auth::Password(_) => ("password", "set the right one in the secrets store".to_owned()),
        Auth::Key(_) => ("key", format!("put the public key into ~{}/.ssh/authorized_keys there", door.user)),
        Auth::KeyFile(path) => {
            ("key", format!("put {}.pub into ~{}/.ssh/authorized_keys there", path.display(), door.user))
        }
    };
    let message = format!("it does not let {} in with this {what}; {advice}", door.user);
    Err(SshError::new(SshErrorKind::AuthFailed, door, message))
}

/// Answers each question with the password; more than a few rounds are no password prompt.
async fn answer_questions(
    door: &Door,
    handle: &mut Handle<Checker>,
    password: &str,
) -> Result<AuthResult, SshError> {
    let broken = |error: russh::Error| dropped(door).because(error);
    let mut response =
        handle.authenticate_keyboard_interactive_start(&door.user, None).await.map_err(broken)?;
    for _ in 0..3 {
        match response {
            KeyboardInteractiveAuthResponse::Success => return Ok(AuthResult::Success),
            KeyboardInteractiveAuthResponse::Failure { remaining_methods, partial_success } => {
                return Ok(AuthResult::Failure { remaining_methods, partial_success });
            }
            KeyboardInteractiveAuthResponse::InfoRequest { prompts, .. } => {
                let answers = prompts.iter().map(|_| password.to_owned()).collect();
                response = handle.authenticate_keyboard_interactive_respond(answers).await.map_err(broken)?;
            }
        }
    }
    let message = "it asks more questions than a password answers; let us in with a key";
    Err(SshError::new(SshErrorKind::AuthFailed, door, message))
}

/// Looks at the key that a machine shows.
pub(super) struct Checker {
    door: Door,
    known: KnownHosts,
}

/// What ends a connection, before we know how to tell it.
#[derive(Debug)]
pub(super) enum Ended {
    Library(russh::Error),
    Ours(SshError),
}

impl From<russh::Error> for Ended {
    fn from(error: russh::Error) -> Self {
        Self::Library(error)
    }
}

impl Ended {
    fn at(self, door: &Door) -> SshError {
        match self {
            Self::Ours(error) => error,
            Self::Library(error @ russh::Error::NoCommonAlgo { .. }) => {
                let message = "its SSH server and we have no algorithm in common; it needs an ed25519 or ECDSA host key and a current OpenSSH";
                SshError::new(SshErrorKind::Protocol, door, message).because(error)
            }
            Self::Library(error @ russh::Error::Version) => {
                let message = "what answers at this port is no SSH server; check the port";
                SshError::new(SshErrorKind::Protocol, door, message).because(error)
            }
            Self::Library(error) => dropped(door).because(error),
        }
    }
}

impl client::Handler for Checker {
    type Error = Ended;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Ended> {
        let (door, known, key) = (self.door.clone(), self.known.clone(), shown.public_key());
        // Pinning waits for the disk.
        let checked = tokio::task::spawn_blocking(move || known.check(&door, &key)).await;
        checked.map_err(std::io::Error::other).map_err(russh::Error::IO)?.map_err(Ended::Ours)?;
        Ok(true)
    }
}
