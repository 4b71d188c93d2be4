//! A package that goes, with its files.

use super::{App, blocking, files::Shelf, recover::settled};
use crate::domain::{AppError, Notice, OnboardingState, OperationalState, PackageId, PackageRecord};

/// Deletes a package that nobody uses, with its content. `check` sees the package before anything is decided.
pub async fn delete(
    app: &App,
    id: PackageId,
    check: impl Fn(&PackageRecord) -> Result<(), AppError>,
) -> Result<(), AppError> {
    let package = settled(app, id).await?;
    check(&package)?;
    may_go(&package, app.store.instances_of(id).await?)?;
    let shelf = Shelf::new(&app.config.data);
    let locking = shelf.clone();
    let names = blocking(move || locking.prepare().and_then(|()| locking.names())).await?;
    let onboarded = package.onboarding == OnboardingState::Onboarded;
    let notices = if onboarded {
        vec![Notice::PackageChanged { package: Box::new(package.clone()), deleted: true }]
    } else {
        Vec::new()
    };
    if let Err(error) = app.store.delete_package(&package, &notices).await {
        // An instance may have come in between.
        may_go(&package, app.store.instances_of(id).await?)?;
        return Err(error.into());
    }
    let used = match &package.content {
        Some((name, ..)) => app.store.content_is_used(name).await?,
        None => true,
    };
    blocking(move || {
        if let (Some((name, ..)), false) = (&package.content, used) {
            shelf.discard(name)?;
        }
        // Somebody who is uploading to it finds it gone and cleans up; otherwise nothing may stay behind.
        if !onboarded && let Some(claim) = shelf.claim(id)? {
            claim.remove()?;
        }
        drop(names);
        Ok(())
    })
    .await
}

/// Whether a package may be deleted.
fn may_go(package: &PackageRecord, instances: i64) -> Result<(), AppError> {
    let id = package.id;
    if package.onboarding != OnboardingState::Onboarded {
        return Ok(());
    }
    if instances > 0 {
        return Err(AppError::conflict(format!(
            "package {id} is IN_USE: {instances} VNF instances follow it; delete them first"
        )));
    }
    if package.operational == OperationalState::Enabled {
        return Err(AppError::conflict(format!(
            "package {id} is ENABLED; disable it first (PATCH operationalState DISABLED)"
        )));
    }
    Ok(())
}
