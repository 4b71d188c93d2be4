//! VIMs: unique names, one default at most.

use super::{Arg, Row, Store, StoreError, Tx, to_json};
use crate::domain::{InstanceId, Vim, VimId};

/// The most VIMs that are listed.
const MOST: i64 = 10_000;

impl Store {
    /// Registers a VIM. `Taken` if its name is. Where it is the default, the one before no longer is.
    pub async fn insert_vim(&self, vim: &Vim) -> Result<(), StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        only_default(&mut tx, vim).await?;
        tx.execute(
            "INSERT INTO vim (id, name, type, is_default, doc) VALUES ($1, $2, $3, $4, $5)",
            &columns(vim),
        )
        .await?;
        tx.commit().await?;
        drop(writer);
        self.tell();
        Ok(())
    }

    /// One VIM.
    pub async fn vim(&self, id: VimId) -> Result<Option<Vim>, StoreError> {
        let rows =
            self.db.read("SELECT doc, is_default FROM vim WHERE id = $1", &[id.to_string().into()]).await?;
        rows.first().map(parse).transpose()
    }

    /// All VIMs, the oldest first.
    pub async fn vims(&self) -> Result<Vec<Vim>, StoreError> {
        let rows =
            self.db.read("SELECT doc, is_default FROM vim ORDER BY id LIMIT $1", &[MOST.into()]).await?;
        rows.iter().map(parse).collect()
    }

    /// Writes a VIM; whether it was there. `Taken` if another one has its name.
    pub async fn update_vim(&self, vim: &Vim) -> Result<bool, StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        only_default(&mut tx, vim).await?;
        let done = tx
            .execute(
                "UPDATE vim SET name = $2, type = $3, is_default = $4, doc = $5 WHERE id = $1",
                &columns(vim),
            )
            .await?;
        tx.commit().await?;
        drop(writer);
        self.tell();
        Ok(done > 0)
    }

    /// Forgets a VIM that no instance stands in and no unfinished operation is about to; whether it did.
    pub async fn delete_vim(&self, id: VimId) -> Result<bool, StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        let gone = tx
            .execute(
                "DELETE FROM vim WHERE id = $1 AND NOT EXISTS \
                 (SELECT 1 FROM instance i WHERE i.body LIKE $2) AND NOT EXISTS \
                 (SELECT 1 FROM operation o WHERE o.state IN \
                 ('STARTING', 'PROCESSING', 'ROLLING_BACK', 'FAILED_TEMP') AND o.doc LIKE $2)",
                &[id.to_string().into(), mention(id).into()],
            )
            .await?;
        tx.commit().await?;
        drop(writer);
        self.tell();
        Ok(gone > 0)
    }

    /// Some of the instances that stand in a VIM, for a message.
    pub async fn instances_in(&self, id: VimId) -> Result<Vec<InstanceId>, StoreError> {
        let rows = self
            .db
            .read("SELECT id FROM instance WHERE body LIKE $1 ORDER BY id LIMIT 5", &[mention(id).into()])
            .await?;
        rows.iter()
            .map(|row| {
                let text = row.text(0)?;
                text.parse().map_err(|error: uuid::Error| {
                    StoreError::damaged("id", sqlx::Error::Decode(error.into()))
                })
            })
            .collect()
    }
}

async fn only_default(tx: &mut Tx<'_>, vim: &Vim) -> Result<(), StoreError> {
    if vim.default {
        tx.execute(
            "UPDATE vim SET is_default = 0 WHERE is_default = 1 AND id <> $1",
            &[vim.id.to_string().into()],
        )
        .await?;
    }
    Ok(())
}

fn columns(vim: &Vim) -> [Arg; 5] {
    [
        vim.id.to_string().into(),
        vim.name.as_str().into(),
        vim.kind.as_str().into(),
        i64::from(vim.default).into(),
        to_json(vim).into(),
    ]
}

/// How a document of ours names a VIM; an id is a UUID, which holds nothing that `LIKE` would take for a pattern.
fn mention(id: VimId) -> String {
    format!("%\"vim\":\"{id}\"%")
}

fn parse(row: &Row) -> Result<Vim, StoreError> {
    let mut vim: Vim = row.json(0)?;
    // The column has the last word: another VIM that became the default did not touch this document.
    vim.default = row.int(1)? == 1;
    Ok(vim)
}
