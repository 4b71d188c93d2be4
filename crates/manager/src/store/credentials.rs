//! Who may ask: credentials, and the short-lived rights that they give out. Secrets are kept as hashes.

use jiff::Timestamp;

use super::{Row, Store, StoreError};
use crate::domain::{Credential, CredentialKind, Role};

/// What a hash stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    /// Whose it is.
    pub credential: Credential,
    /// `token`, or the kind of session: `access`, `console`.
    pub kind: String,
    /// When it ends.
    pub expires: Option<Timestamp>,
}

impl Store {
    /// Keeps a credential. `Taken` if the name is.
    pub async fn insert_credential(
        &self,
        credential: &Credential,
        hash: Option<String>,
    ) -> Result<(), StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        tx.execute(
            "INSERT INTO credential (id, name, kind, role, hash, created_ms, expires_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            &[
                credential.id.to_string().into(),
                credential.name.as_str().into(),
                credential.kind.as_str().into(),
                credential.role.as_str().into(),
                hash.into(),
                credential.created.as_millisecond().into(),
                credential.expires.map(Timestamp::as_millisecond).into(),
            ],
        )
        .await?;
        tx.commit().await
    }

    /// Gives a token a new value.
    pub async fn renew_credential(&self, name: &str, hash: &str) -> Result<bool, StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        let done = tx
            .execute(
                "UPDATE credential SET hash = $2 WHERE name = $1 AND kind = 'token'",
                &[name.into(), hash.into()],
            )
            .await?;
        tx.commit().await?;
        Ok(done > 0)
    }

    /// All credentials, by name.
    pub async fn credentials(&self) -> Result<Vec<Credential>, StoreError> {
        let rows = self
            .db
            .read(
                "SELECT id, name, kind, role, created_ms, expires_ms FROM credential ORDER BY name LIMIT 10000",
                &[],
            )
            .await?;
        rows.iter().map(parse).collect()
    }

    /// One credential by its id or its name, with the hash of its secret.
    pub async fn credential(
        &self,
        id_or_name: &str,
    ) -> Result<Option<(Credential, Option<String>)>, StoreError> {
        let rows = self
            .db
            .read(
                "SELECT id, name, kind, role, created_ms, expires_ms, hash FROM credential \
                 WHERE id = $1 OR name = $1 ORDER BY CASE WHEN id = $1 THEN 0 ELSE 1 END LIMIT 1",
                &[id_or_name.into()],
            )
            .await?;
        rows.first().map(|row| Ok((parse(row)?, row.text_or_none(6)?))).transpose()
    }

    /// Forgets a credential and all that it gave out; whether it was there.
    pub async fn delete_credential(&self, id: &str) -> Result<bool, StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        let gone = tx.execute("DELETE FROM credential WHERE id = $1", &[id.into()]).await?;
        tx.commit().await?;
        Ok(gone > 0)
    }

    /// The token or session that a hash stands for.
    pub async fn right(&self, hash: &str) -> Result<Option<Right>, StoreError> {
        let rows = self
            .db
            .read(
                "SELECT id, name, kind, role, created_ms, expires_ms, 'token', expires_ms FROM credential \
                 WHERE hash = $1 AND kind = 'token' \
                 UNION ALL \
                 SELECT c.id, c.name, c.kind, c.role, c.created_ms, c.expires_ms, s.kind, s.expires_ms \
                 FROM session s JOIN credential c ON c.id = s.credential WHERE s.hash = $1",
                &[hash.into()],
            )
            .await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let credential = parse(row)?;
        let expires = [time(row, 7)?, credential.expires].into_iter().flatten().min();
        Ok(Some(Right { credential, kind: row.text(6)?, expires }))
    }

    /// The credential for a verified certificate that bears this name.
    pub async fn certificate(&self, name: &str) -> Result<Option<Credential>, StoreError> {
        let rows = self
            .db
            .read(
                "SELECT id, name, kind, role, created_ms, expires_ms FROM credential \
                 WHERE name = $1 AND kind = 'certificate'",
                &[name.into()],
            )
            .await?;
        rows.first().map(parse).transpose()
    }

    /// Keeps a short-lived right, and drops those that have ended.
    pub async fn insert_session(
        &self,
        hash: &str,
        credential: &Credential,
        kind: &str,
        now: Timestamp,
        expires: Timestamp,
    ) -> Result<(), StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        tx.execute("DELETE FROM session WHERE expires_ms < $1", &[now.as_millisecond().into()]).await?;
        tx.execute(
            "INSERT INTO session (hash, credential, kind, expires_ms) VALUES ($1, $2, $3, $4)",
            &[hash.into(), credential.id.to_string().into(), kind.into(), expires.as_millisecond().into()],
        )
        .await?;
        tx.commit().await
    }

    /// Ends a short-lived right.
    pub async fn delete_session(&self, hash: &str) -> Result<(), StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        tx.execute("DELETE FROM session WHERE hash = $1", &[hash.into()]).await?;
        tx.commit().await
    }
}

fn parse(row: &Row) -> Result<Credential, StoreError> {
    let damaged = |column: &'static str| {
        move |text: String| StoreError::damaged(column, sqlx::Error::Decode(text.into()))
    };
    Ok(Credential {
        id: row.text(0)?.parse().map_err(|error: uuid::Error| damaged("id")(error.to_string()))?,
        name: row.text(1)?,
        kind: CredentialKind::parse(&row.text(2)?).map_err(damaged("kind"))?,
        role: Role::parse(&row.text(3)?).map_err(damaged("role"))?,
        created: time(row, 4)?.ok_or_else(|| damaged("created_ms")("nothing".to_owned()))?,
        expires: time(row, 5)?,
    })
}

fn time(row: &Row, column: usize) -> Result<Option<Timestamp>, StoreError> {
    row.int_or_none(column)?
        .map(|ms| {
            Timestamp::from_millisecond(ms)
                .map_err(|error| StoreError::damaged(column, sqlx::Error::Decode(error.into())))
        })
        .transpose()
}
