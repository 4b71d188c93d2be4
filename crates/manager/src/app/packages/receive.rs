//! Content that arrives bit by bit: into a file, within bounds, with a way back at every step.

use std::{io, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use tokio::io::AsyncWriteExt as _;

use super::{
    App, Told, blocking, change, disk,
    files::{Claim, Shelf},
    onboard::{self, Failure},
    recover::settled,
};
use crate::domain::{AppError, ErrorKind, OnboardingState, PackageId};

/// Who sends nothing for so long has gone away.
const SILENCE: Duration = Duration::from_secs(60);
/// After so many bytes the disk is looked at again.
const LOOK: u64 = 64 * 1024 * 1024;
/// Written at once.
const CHUNK: usize = 1024 * 1024;
/// How much of a refused body is read, so that the sender gets to see the answer instead of a broken connection.
const DRAIN: (u64, Duration) = (64 * 1024 * 1024, Duration::from_secs(2));
/// Somebody who only looks whether an upload is alive holds it for a moment.
const CLAIMS: (u32, Duration) = (5, Duration::from_millis(50));

/// What a sender says of a body before it sends it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Announced {
    /// How long it is.
    pub length: Option<u64>,
    /// Whether it is sent only once we ask for it (`Expect: 100-continue`).
    pub waits: bool,
}

/// Takes a package's content. When it returns, the content is on the disk and being read.
pub async fn receive<S>(app: &App, id: PackageId, announced: Announced, body: S) -> Result<(), AppError>
where
    S: Stream<Item = io::Result<Bytes>> + Send + Unpin + 'static,
{
    let app = app.clone();
    // On its own, so that a caller who goes away does not take the way back along.
    let received = tokio::spawn(async move {
        let mut body = body;
        let stored = match begin(&app, id, announced.length).await {
            Ok(claim) => store(&app, id, claim, &mut body).await,
            // Reading would ask for what is not wanted.
            Err(error) if announced.waits => return Err(error),
            Err(error) => Err(error),
        };
        if stored.is_err() {
            drain(&mut body).await;
        }
        stored
    });
    received.await.map_err(|error| {
        AppError::new(ErrorKind::Internal, "the upload was given up; its log says why").because(error)
    })?
}

/// Reads some of a body that is refused, and forgets it.
pub async fn drain<S>(body: &mut S)
where
    S: Stream<Item = io::Result<Bytes>> + Unpin,
{
    let (most, time) = DRAIN;
    let drained = tokio::time::timeout(time, async {
        let mut read = 0;
        while let Some(Ok(chunk)) = body.next().await {
            read += chunk.len() as u64;
            if read > most {
                break;
            }
        }
    });
    if drained.await.is_err() {
        tracing::debug!("the sender of a refused body is slow and is not waited for");
    }
}

/// Makes a package ready to take content: from here on it is `UPLOADING`, and in our hands.
pub(super) async fn begin(app: &App, id: PackageId, length: Option<u64>) -> Result<Claim, AppError> {
    let package = settled(app, id).await?;
    expect_created(id, package.onboarding)?;
    let shelf = Shelf::new(&app.config.data);
    let limit = limit(app);
    if let Some(length) = length.filter(|length| *length > limit) {
        return Err(too_large(limit, Some(length)));
    }
    let looked = shelf.clone();
    let room = blocking(move || looked.prepare().and_then(|()| looked.room())).await?;
    if room == 0 || length.is_some_and(|length| length > room) {
        return Err(no_room(room));
    }
    let claim = claimed(&shelf, id).await?;
    let started = change(app, id, |package| {
        expect_created(id, package.onboarding)?;
        package.onboarding = OnboardingState::Uploading;
        onboard::forget_failure(package);
        Ok(Told::Nobody)
    });
    if let Err(error) = started.await {
        blocking(move || claim.remove()).await?;
        return Err(error);
    }
    // Nobody else writes to it now; what an earlier upload left behind goes.
    let emptied = blocking(move || claim.file.set_len(0).and_then(|()| shelf.sync()).map(|()| claim)).await;
    if let Err(error) = &emptied {
        // The lock is gone with the claim, so that whoever asks next puts the state right.
        tracing::error!(package = %id, %error, "an upload cannot be begun");
    }
    emptied
}

/// Writes the content to the disk and has it read; or the package is `CREATED` again, with the reason.
pub(super) async fn store<S>(app: &App, id: PackageId, claim: Claim, body: &mut S) -> Result<(), AppError>
where
    S: Stream<Item = io::Result<Bytes>> + Unpin,
{
    let written = write(app, &claim, body).await;
    let moved = match written {
        Ok(()) => {
            change(app, id, |package| {
                if package.onboarding != OnboardingState::Uploading {
                    return Err(AppError::conflict(format!(
                        "package {id} was changed while its content arrived; it is {} now",
                        package.onboarding.as_str()
                    )));
                }
                package.onboarding = OnboardingState::Processing;
                Ok(Told::Nobody)
            })
            .await
        }
        Err(error) => Err(error),
    };
    match moved {
        Ok(_) => {
            tokio::spawn(onboard::process(app.clone(), id, claim));
            Ok(())
        }
        Err(error) => {
            onboard::fail(app, id, claim, &Failure::upload(error.kind, error.detail.clone())).await;
            Err(error)
        }
    }
}

async fn write<S>(app: &App, claim: &Claim, body: &mut S) -> Result<(), AppError>
where
    S: Stream<Item = io::Result<Bytes>> + Unpin,
{
    let limit = limit(app);
    let shelf = Shelf::new(&app.config.data);
    let file = tokio::fs::File::from_std(claim.file.try_clone().map_err(disk)?);
    let mut writer = tokio::io::BufWriter::with_capacity(CHUNK, file);
    let (mut size, mut looked) = (0_u64, 0_u64);
    loop {
        let next = tokio::time::timeout(SILENCE, body.next()).await.map_err(|_| {
            AppError::invalid(format!(
                "the upload was cut after {size} bytes: nothing came for {} seconds; upload it again",
                SILENCE.as_secs()
            ))
        })?;
        let Some(chunk) = next else { break };
        let chunk = chunk.map_err(|error| {
            AppError::invalid(format!("the upload was cut after {size} bytes; upload it again"))
                .because(error)
        })?;
        size += chunk.len() as u64;
        if size > limit {
            return Err(too_large(limit, None));
        }
        if size - looked > LOOK {
            looked = size;
            let shelf = shelf.clone();
            if blocking(move || shelf.room()).await? == 0 {
                return Err(no_room(0));
            }
        }
        writer.write_all(&chunk).await.map_err(disk)?;
    }
    writer.flush().await.map_err(disk)?;
    writer.into_inner().sync_all().await.map_err(disk)?;
    if size == 0 {
        return Err(AppError::invalid("the content is empty; send a package (CSAR, application/zip)"));
    }
    Ok(())
}

async fn claimed(shelf: &Shelf, id: PackageId) -> Result<Claim, AppError> {
    let (tries, pause) = CLAIMS;
    for _ in 0..tries {
        let shelf = shelf.clone();
        if let Some(claim) = blocking(move || shelf.claim(id)).await? {
            return Ok(claim);
        }
        tokio::time::sleep(pause).await;
    }
    Err(AppError::conflict(format!("package {id} is being uploaded by somebody else")))
}

fn expect_created(id: PackageId, state: OnboardingState) -> Result<(), AppError> {
    if state == OnboardingState::Created {
        return Ok(());
    }
    let what = match state {
        OnboardingState::Onboarded => "create another package for other content",
        _ => "wait until its content was read",
    };
    Err(AppError::conflict(format!(
        "package {id} is {}; content is taken while it is CREATED: {what}",
        state.as_str()
    )))
}

/// No package is larger than what it may hold.
fn limit(app: &App) -> u64 {
    app.config.packages.limits.unpacked_bytes
}

fn too_large(limit: u64, length: Option<u64>) -> AppError {
    let length = length.map_or_else(|| "more".to_owned(), |length| format!("{length} bytes"));
    AppError::new(ErrorKind::TooLarge, format!("the content has {length}; at most {limit} bytes are taken"))
}

fn no_room(room: u64) -> AppError {
    AppError::new(
        ErrorKind::Unavailable,
        format!(
            "disk full: {} MB are left for packages in the manager's data directory; make room and repeat the request",
            room >> 20
        ),
    )
}
