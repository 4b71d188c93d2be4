//! From a file to an onboarded package, or to the reason why not.

use std::time::Duration;

use guywire_package::{Package, Rejection};
use tokio::sync::Semaphore;

use super::{
    App, Told, blocking, change,
    files::{Claim, Shelf},
};
use crate::domain::{AppError, ErrorKind, OnboardingState, OperationalState, PackageId, PackageRecord};

/// What a failure is about when no file inside the package is to blame.
const WHOLE: &str = "package";
/// Packages that are read at once: each takes a core and the disk.
static READERS: Semaphore = Semaphore::const_new(2);
/// How long a database may be away before a worker lets go; whoever asks for the package later takes over.
const RETRIES: u32 = 30;

/// Why content was not taken.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// What, and where.
    pub(super) reason: Rejection,
    /// What kind of failure it is.
    pub(super) kind: ErrorKind,
}

impl Failure {
    /// It did not arrive.
    pub(super) fn upload(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { reason: Rejection::file(WHOLE, detail), kind }
    }

    /// It arrived, and is not right.
    fn rejected(mut reason: Rejection) -> Self {
        // The name under which we keep it means nothing to whoever sent it.
        if reason.file.starts_with('.') && reason.file.contains("upload-") {
            WHOLE.clone_into(&mut reason.file);
        }
        let kind = if reason.ours { ErrorKind::Unavailable } else { ErrorKind::Unprocessable };
        Self { reason, kind }
    }
}

/// Reads a package's content and onboards it. Crash-safe: until the record is written, the upload is kept.
pub(super) async fn process(app: App, id: PackageId, claim: Claim) {
    let Ok(_turn) = READERS.acquire().await else { return };
    let (path, policy) = (claim.path.clone(), app.config.packages.clone());
    let read = tokio::task::spawn_blocking(move || guywire_package::read(&path, &policy)).await;
    let failure = match read {
        Ok(Ok(package)) => match onboard(&app, id, &claim, package).await {
            Ok(None) => {
                tracing::info!(package = %id, "a package was onboarded");
                return finish(claim).await;
            }
            Ok(Some(failure)) => failure,
            Err(error) if error.kind == ErrorKind::NotFound => return finish(claim).await,
            Err(error) => Failure::upload(error.kind, error.detail),
        },
        Ok(Err(rejection)) => Failure::rejected(rejection),
        // The process is about to end; the next one goes on.
        Err(error) if error.is_cancelled() => return,
        Err(error) => {
            tracing::error!(package = %id, %error, "the reader of packages made a mistake");
            Failure::upload(
                ErrorKind::Internal,
                "the manager made a mistake while it read this; its log says more",
            )
        }
    };
    fail(&app, id, claim, &failure).await;
}

/// Gives the content its name and the record what was read; or says why that cannot be.
async fn onboard(
    app: &App,
    id: PackageId,
    claim: &Claim,
    package: Package,
) -> Result<Option<Failure>, AppError> {
    let shelf = Shelf::new(&app.config.data);
    let name = Shelf::content_name(&package.sha256);
    let locking = shelf.clone();
    let names = blocking(move || locking.names()).await?;
    if let Some(other) = app.store.package_of(&package.vnfd.id).await?.filter(|other| other.id != id) {
        return Ok(Some(taken(&package.vnfd.id, other.id)));
    }
    let (keeping, kept, from) = (shelf.clone(), name.clone(), claim.path.clone());
    blocking(move || keeping.keep(&from, &kept)).await?;
    let size = package.size;
    let written = persist(|| {
        change(app, id, |record| {
            if record.onboarding != OnboardingState::Processing {
                return Err(AppError::conflict(format!(
                    "package {id} was changed while its content was read; it is {} now",
                    record.onboarding.as_str()
                )));
            }
            fill(record, &package, (name.clone(), size, package.sha256.clone()));
            Ok(Told::Onboarded)
        })
    })
    .await;
    if let Err(error) = written {
        if !app.store.content_is_used(&name).await? {
            blocking(move || shelf.discard(&name)).await?;
        }
        return Err(error);
    }
    drop(names);
    Ok(None)
}

/// What was read goes into the record; nothing is read again.
fn fill(record: &mut PackageRecord, package: &Package, content: (String, u64, String)) {
    record.onboarding = OnboardingState::Onboarded;
    record.operational = OperationalState::Enabled;
    forget_failure(record);
    record.content = Some(content);
    record.vnfd = Some(package.vnfd.clone());
    record.vnfd_files.clone_from(&package.vnfd_files);
    record.artifacts.clone_from(&package.artifacts);
    record.signer.clone_from(&package.signer);
    record.warnings.clone_from(&package.warnings);
}

/// Puts a package back to `CREATED` with the reason, and removes what had arrived.
pub(super) async fn fail(app: &App, id: PackageId, claim: Claim, failure: &Failure) {
    tracing::info!(package = %id, reason = %failure.reason, "a package's content was not taken");
    let written = persist(|| {
        change(app, id, |record| {
            let under_way =
                matches!(record.onboarding, OnboardingState::Uploading | OnboardingState::Processing);
            if !under_way {
                return Err(AppError::conflict("it was put right by somebody else"));
            }
            record.onboarding = OnboardingState::Created;
            record.failure = Some(failure.reason.clone());
            record.failure_status = Some(failure.kind.status());
            Ok(Told::Nobody)
        })
    })
    .await;
    match written {
        Err(error) if !matches!(error.kind, ErrorKind::NotFound | ErrorKind::Conflict) => {
            // The lock goes and the file stays: whoever asks for the package next puts it right.
            tracing::error!(package = %id, %error, "a failed upload cannot be written down");
        }
        _ => finish(claim).await,
    }
}

/// An upload that starts anew knows nothing of the last one's failure.
pub(super) fn forget_failure(record: &mut PackageRecord) {
    record.failure = None;
    record.failure_status = None;
}

async fn finish(claim: Claim) {
    if let Err(error) = blocking(move || claim.remove()).await {
        tracing::warn!(%error, source = ?error.source, "an upload that is over cannot be removed");
    }
}

fn taken(vnfd_id: &str, other: PackageId) -> Failure {
    let reason = format!(
        "descriptor {vnfd_id} is onboarded already, in package {other}; delete that one first, or give this descriptor \
         another id"
    );
    Failure::upload(ErrorKind::Conflict, reason)
}

/// Repeats a write while the database is away.
async fn persist<F, R>(write: F) -> Result<PackageRecord, AppError>
where
    F: Fn() -> R,
    R: Future<Output = Result<PackageRecord, AppError>>,
{
    for _ in 0..RETRIES {
        match write().await {
            Err(error) if error.kind == ErrorKind::Unavailable => {
                tracing::warn!(%error, "a package's state cannot be written down; trying again");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            other => return other,
        }
    }
    write().await
}
