//! Puts right what a manager left behind that died while it worked on packages.

use super::{
    App, blocking,
    files::Shelf,
    find,
    onboard::{self, Failure},
};
use crate::domain::{AppError, ErrorKind, OnboardingState, PackageId, PackageRecord};

/// Looks at everything that may have been left behind. What another manager works on is left alone.
pub async fn recover(app: &App) -> Result<(), AppError> {
    let shelf = Shelf::new(&app.config.data);
    let listing = shelf.clone();
    let (contents, uploads) = blocking(move || listing.prepare().and_then(|()| listing.list())).await?;
    for package in app.store.packages_under_way().await? {
        settle(app, package.id).await?;
    }
    for id in uploads {
        let package = app.store.package(id).await?;
        if !package.is_some_and(|package| under_way(&package)) {
            settle(app, id).await?;
        }
    }
    let locking = shelf.clone();
    let names = blocking(move || locking.names()).await?;
    for name in contents {
        if !app.store.content_is_used(&name).await? {
            tracing::info!(content = name, "a content that no package has is removed");
            let shelf = shelf.clone();
            blocking(move || shelf.discard(&name)).await?;
        }
    }
    drop(names);
    Ok(())
}

/// A package, after whoever worked on it and died was put right.
pub async fn settled(app: &App, id: PackageId) -> Result<PackageRecord, AppError> {
    let package = find(app, id).await?;
    if !under_way(&package) {
        return Ok(package);
    }
    settle(app, id).await?;
    find(app, id).await
}

/// Takes over a package's upload, unless somebody works on it.
async fn settle(app: &App, id: PackageId) -> Result<(), AppError> {
    let shelf = Shelf::new(&app.config.data);
    let Some(claim) = blocking(move || shelf.prepare().and_then(|()| shelf.claim(id))).await? else {
        return Ok(());
    };
    // Read again now that nobody else can change it.
    let state = app.store.package(id).await?.map(|package| package.onboarding);
    match state {
        Some(OnboardingState::Uploading) => {
            let reason =
                "the upload was cut: the manager stopped before all of it was there; upload it again";
            onboard::fail(app, id, claim, &Failure::upload(ErrorKind::Unavailable, reason)).await;
        }
        Some(OnboardingState::Processing) => {
            let (claim, size) = blocking(move || claim.size().map(|size| (claim, size))).await?;
            if size == 0 {
                let reason = "the content was lost while it was read; upload it again";
                onboard::fail(app, id, claim, &Failure::upload(ErrorKind::Unavailable, reason)).await;
            } else {
                tracing::info!(package = %id, "a package that was being read is read again");
                tokio::spawn(onboard::process(app.clone(), id, claim));
            }
        }
        Some(OnboardingState::Created | OnboardingState::Onboarded) | None => {
            blocking(move || claim.remove()).await?;
        }
    }
    Ok(())
}

fn under_way(package: &PackageRecord) -> bool {
    matches!(package.onboarding, OnboardingState::Uploading | OnboardingState::Processing)
}
