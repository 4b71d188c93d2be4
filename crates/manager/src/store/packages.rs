//! Packages.

use super::{Arg, Row, Store, StoreError, to_json};
use crate::domain::{Notice, OnboardingState, PackageId, PackageRecord, UsageState};

impl Store {
    /// Keeps a new package.
    pub async fn insert_package(&self, package: &PackageRecord) -> Result<(), StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        tx.execute(
            "INSERT INTO package (id, rev, vnfd_id, state, doc) VALUES ($1, 1, NULL, $2, $3)",
            &[package.id.to_string().into(), package.onboarding.as_str().into(), to_json(package).into()],
        )
        .await?;
        tx.commit().await
    }

    /// One package.
    pub async fn package(&self, id: PackageId) -> Result<Option<PackageRecord>, StoreError> {
        let rows =
            self.db.read("SELECT doc, rev FROM package WHERE id = $1", &[id.to_string().into()]).await?;
        rows.first().map(parse).transpose()
    }

    /// The onboarded package that holds a descriptor.
    pub async fn package_of(&self, vnfd_id: &str) -> Result<Option<PackageRecord>, StoreError> {
        let rows = self.db.read("SELECT doc, rev FROM package WHERE vnfd_id = $1", &[vnfd_id.into()]).await?;
        rows.first().map(parse).transpose()
    }

    /// A page of packages, the oldest first.
    pub async fn packages(
        &self,
        after: Option<PackageId>,
        limit: u32,
    ) -> Result<Vec<PackageRecord>, StoreError> {
        let after = after.map(|id| id.to_string()).unwrap_or_default();
        let rows = self
            .db
            .read(
                "SELECT doc, rev FROM package WHERE id > $1 ORDER BY id LIMIT $2",
                &[after.into(), i64::from(limit).into()],
            )
            .await?;
        rows.iter().map(parse).collect()
    }

    /// A page of packages, the oldest first, each with whether instances follow it.
    pub async fn packages_with_usage(
        &self,
        after: Option<PackageId>,
        limit: u32,
    ) -> Result<Vec<(PackageRecord, UsageState)>, StoreError> {
        let after = after.map(|id| id.to_string()).unwrap_or_default();
        let rows = self
            .db
            .read(
                "SELECT doc, rev, CASE WHEN EXISTS (SELECT 1 FROM instance i WHERE i.package = p.id) \
                 THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END \
                 FROM package p WHERE p.id > $1 ORDER BY p.id LIMIT $2",
                &[after.into(), i64::from(limit).into()],
            )
            .await?;
        let used = |row: &Row| Ok(if row.int(2)? == 0 { UsageState::NotInUse } else { UsageState::InUse });
        rows.iter().map(|row| Ok((parse(row)?, used(row)?))).collect()
    }

    /// Packages whose content is arriving or being read.
    pub async fn packages_under_way(&self) -> Result<Vec<PackageRecord>, StoreError> {
        let rows = self
            .db
            .read("SELECT doc, rev FROM package WHERE state IN ('UPLOADING', 'PROCESSING') ORDER BY id", &[])
            .await?;
        rows.iter().map(parse).collect()
    }

    /// Whether some package has the content of this name.
    pub async fn content_is_used(&self, name: &str) -> Result<bool, StoreError> {
        // A name is a hash with an ending, so there is nothing in it that LIKE would read differently.
        let pattern = format!("%\"content\":[\"{name}\",%");
        let rows = self
            .db
            .read(
                "SELECT id FROM package WHERE state = 'ONBOARDED' AND doc LIKE $1 LIMIT 1",
                &[pattern.into()],
            )
            .await?;
        Ok(!rows.is_empty())
    }

    /// Writes a package that was decided on its present revision. `Taken` if its descriptor is onboarded already.
    pub async fn update_package(
        &self,
        package: &PackageRecord,
        notices: &[Notice],
    ) -> Result<(), StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        let onboarded = package.onboarding == OnboardingState::Onboarded;
        let vnfd_id = package.vnfd.as_ref().filter(|_| onboarded).map(|vnfd| vnfd.id.clone());
        let done = tx
            .execute(
                "UPDATE package SET rev = rev + 1, vnfd_id = $3, state = $4, doc = $5 WHERE id = $1 AND rev = $2",
                &[
                    package.id.to_string().into(),
                    package.rev.into(),
                    Arg::from(vnfd_id),
                    package.onboarding.as_str().into(),
                    to_json(package).into(),
                ],
            )
            .await?;
        if done == 0 {
            return Err(StoreError::stale("the package"));
        }
        self.conclude(tx, notices).await
    }

    /// Forgets a package that no instance follows. `Taken` if an operation is about to make one follow it.
    pub async fn delete_package(
        &self,
        package: &PackageRecord,
        notices: &[Notice],
    ) -> Result<(), StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        // An operation that is not finished may be about to move its instance to this package.
        let awaited = format!("%\"package\":[\"{}\",%", package.id);
        let rows = tx
            .fetch(
                "SELECT id FROM operation WHERE state IN ('STARTING', 'PROCESSING', 'ROLLING_BACK', 'FAILED_TEMP') \
                 AND type = 'CHANGE_VNFPKG' AND doc LIKE $1 LIMIT 1",
                &[awaited.into()],
            )
            .await?;
        if let Some(row) = rows.first() {
            return Err(StoreError::taken(format!(
                "operation {} changes an instance to package {} and is not finished; wait for its end, or fail it",
                row.text(0)?,
                package.id
            )));
        }
        let gone = tx
            .execute(
                "DELETE FROM package WHERE id = $1 AND rev = $2 AND NOT EXISTS \
                 (SELECT 1 FROM instance i WHERE i.package = $1)",
                &[package.id.to_string().into(), package.rev.into()],
            )
            .await?;
        if gone == 0 {
            return Err(StoreError::stale("the package"));
        }
        self.conclude(tx, notices).await
    }
}

fn parse(row: &Row) -> Result<PackageRecord, StoreError> {
    let mut package: PackageRecord = row.json(0)?;
    package.rev = row.int(1)?;
    Ok(package)
}
