//! Machines that operations have spoken for.

use super::{Store, StoreError, Tx};
use crate::domain::{InstanceId, Vnfc};

/// A machine that somebody has spoken for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Its name.
    pub name: String,
    /// Its site.
    pub site: String,
    /// Its number in the site.
    pub number: u16,
    /// For which instance.
    pub instance: String,
}

impl Store {
    /// All machines of a place that are spoken for.
    pub async fn claimed(&self, infra: &str) -> Result<Vec<Claimed>, StoreError> {
        let rows = self
            .db
            .read("SELECT name, site, number, instance FROM machine WHERE infra = $1", &[infra.into()])
            .await?;
        rows.iter()
            .map(|row| {
                let number = u16::try_from(row.int(2)?).unwrap_or(u16::MAX);
                Ok(Claimed { name: row.text(0)?, site: row.text(1)?, number, instance: row.text(3)? })
            })
            .collect()
    }

    /// Speaks for machines, or fails with `Taken` if somebody else was faster with one of them.
    pub(super) async fn claim_machines(
        tx: &mut Tx<'_>,
        infra: &str,
        instance: InstanceId,
        machines: &[Vnfc],
    ) -> Result<(), StoreError> {
        for vnfc in machines {
            tx.execute(
                "INSERT INTO machine (infra, name, site, number, instance, vnfc) VALUES ($1, $2, $3, $4, $5, $6)",
                &[
                    infra.into(),
                    vnfc.machine.name.as_str().into(),
                    vnfc.machine.site.as_str().into(),
                    i64::from(vnfc.machine.number.0).into(),
                    instance.to_string().into(),
                    vnfc.id.as_str().into(),
                ],
            )
            .await?;
        }
        Ok(())
    }

    /// Lets go of all machines of an instance but those that it has now.
    pub(super) async fn keep_machines(
        tx: &mut Tx<'_>,
        instance: InstanceId,
        kept: &[Vnfc],
    ) -> Result<(), StoreError> {
        let rows = tx
            .fetch("SELECT infra, name FROM machine WHERE instance = $1", &[instance.to_string().into()])
            .await?;
        for row in rows {
            let (infra, name) = (row.text(0)?, row.text(1)?);
            if !kept.iter().any(|vnfc| vnfc.machine.name.as_str() == name) {
                tx.execute(
                    "DELETE FROM machine WHERE infra = $1 AND name = $2",
                    &[infra.into(), name.into()],
                )
                .await?;
            }
        }
        Ok(())
    }
}
