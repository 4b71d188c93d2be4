//! Instances: a head that lists show, a body that only a look at one shows.

use serde_json::Value;

use super::{Arg, Row, Store, StoreError, Tx, to_json};
use crate::domain::{Info, Instance, InstanceId, InstantiationState, Notice, PackageId};

/// Which instances a page of a list holds. Conditions on columns are the database's work; others are the caller's.
#[derive(Debug, Clone, Default)]
pub struct InstanceQuery {
    /// Those after this id.
    pub after: Option<InstanceId>,
    /// How many at most.
    pub limit: u32,
    /// Whether bodies are wanted too.
    pub bodies: bool,
    /// Columns that must have one of these values.
    pub equal: Vec<(InstanceColumn, Vec<String>)>,
    /// Texts of which one of each must stand in the head.
    pub contain: Vec<Vec<String>>,
}

/// A column that can be searched by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceColumn {
    /// `id`
    Id,
    /// `vnfInstanceName`
    Name,
    /// `vnfdId`
    Vnfd,
    /// `vnfProvider`
    Provider,
    /// `vnfProductName`
    Product,
    /// `instantiationState`
    State,
}

const COLUMNS: &str = "i.id, i.rev, i.head, (SELECT o.id FROM operation o WHERE o.instance = i.id AND o.state IN \
                       ('STARTING', 'PROCESSING', 'ROLLING_BACK', 'FAILED_TEMP'))";

impl Store {
    /// Keeps a new instance.
    pub async fn insert_instance(&self, instance: &Instance) -> Result<(), StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        // Whoever deletes a package counts its instances; the foreign key lets neither of the two slip.
        tx.execute(
            "INSERT INTO instance (id, rev, name, vnfd_id, package, provider, product, state, head, body) \
             VALUES ($1, 1, $2, $3, $4, $5, $6, $7, $8, NULL)",
            &[
                instance.id.to_string().into(),
                instance.name.clone().into(),
                instance.vnfd_id.as_str().into(),
                instance.package.to_string().into(),
                instance.provider.as_str().into(),
                instance.product.as_str().into(),
                state_word(instance.state).into(),
                head(instance).into(),
            ],
        )
        .await?;
        self.conclude(tx, &[Notice::InstanceCreated(Box::new(instance.clone()))]).await
    }

    /// One instance, whole.
    pub async fn instance(&self, id: InstanceId) -> Result<Option<Instance>, StoreError> {
        let rows = self.db.read(SHOW, &[id.to_string().into()]).await?;
        rows.first().map(|row| parse(row, true)).transpose()
    }

    /// A page of instances, the oldest first.
    pub async fn instances(&self, query: &InstanceQuery) -> Result<Vec<Instance>, StoreError> {
        let (sql, args) = select(query, self.db.position());
        let rows = self.db.read_built(sql, &args).await?;
        rows.iter().map(|row| parse(row, query.bodies)).collect()
    }

    /// How many instances there are, by state.
    pub async fn count_instances(&self) -> Result<Vec<(String, i64)>, StoreError> {
        let rows = self.db.read("SELECT state, count(*) FROM instance GROUP BY state", &[]).await?;
        rows.iter().map(|row| Ok((row.text(0)?, row.int(1)?))).collect()
    }

    /// How many instances follow a package.
    pub async fn instances_of(&self, package: PackageId) -> Result<i64, StoreError> {
        let rows = self
            .db
            .read("SELECT count(*) FROM instance WHERE package = $1", &[package.to_string().into()])
            .await?;
        rows.first().map_or(Ok(0), |row| row.int(0))
    }

    /// Deletes an instance that is not instantiated and has no unfinished operation.
    pub async fn delete_instance(&self, instance: &Instance) -> Result<(), StoreError> {
        let mut writer = self.db.writer().await;
        let mut tx = writer.begin().await?;
        let gone = tx
            .execute(
                "DELETE FROM instance WHERE id = $1 AND rev = $2 AND state = 'NOT_INSTANTIATED' AND NOT EXISTS \
                 (SELECT 1 FROM operation o WHERE o.instance = $1 AND o.state IN \
                 ('STARTING', 'PROCESSING', 'ROLLING_BACK', 'FAILED_TEMP'))",
                &[instance.id.to_string().into(), instance.rev.into()],
            )
            .await?;
        if gone == 0 {
            return Err(StoreError::stale("the instance"));
        }
        self.conclude(tx, &[Notice::InstanceDeleted(Box::new(instance.clone()))]).await
    }

    /// Writes an instance that was decided on its present revision, within a larger change.
    pub(super) async fn put_instance(tx: &mut Tx<'_>, instance: &Instance) -> Result<(), StoreError> {
        let done = tx
            .execute(
                "UPDATE instance SET rev = rev + 1, name = $3, vnfd_id = $4, package = $5, provider = $6, product = $7, \
                 state = $8, head = $9, body = $10 WHERE id = $1 AND rev = $2",
                &[
                    instance.id.to_string().into(),
                    instance.rev.into(),
                    instance.name.clone().into(),
                    instance.vnfd_id.as_str().into(),
                    instance.package.to_string().into(),
                    instance.provider.as_str().into(),
                    instance.product.as_str().into(),
                    state_word(instance.state).into(),
                    head(instance).into(),
                    Arg::Text(instance.info.as_ref().map(to_json)),
                ],
            )
            .await?;
        if done == 0 { Err(StoreError::stale("the instance")) } else { Ok(()) }
    }
}

const SHOW: &str = "SELECT i.id, i.rev, i.head, (SELECT o.id FROM operation o WHERE o.instance = i.id AND o.state IN \
     ('STARTING', 'PROCESSING', 'ROLLING_BACK', 'FAILED_TEMP')), i.body FROM instance i WHERE i.id = $1";

fn select(query: &InstanceQuery, position: &str) -> (String, Vec<Arg>) {
    let body = if query.bodies { ", i.body" } else { "" };
    let mut sql = format!("SELECT {COLUMNS}{body} FROM instance i WHERE i.id > $1");
    let mut args: Vec<Arg> = vec![query.after.map(|id| id.to_string()).unwrap_or_default().into()];
    for (column, values) in &query.equal {
        let marks: Vec<String> = values
            .iter()
            .map(|value| {
                args.push(value.as_str().into());
                format!("${}", args.len())
            })
            .collect();
        sql = format!("{sql} AND i.{} IN ({})", column.name(), marks.join(", "));
    }
    for needles in &query.contain {
        let tests: Vec<String> = needles
            .iter()
            .map(|needle| {
                args.push(needle.as_str().into());
                format!("{position}(i.head, ${}) > 0", args.len())
            })
            .collect();
        sql = format!("{sql} AND ({})", tests.join(" OR "));
    }
    args.push(i64::from(query.limit).into());
    (format!("{sql} ORDER BY i.id LIMIT ${}", args.len()), args)
}

impl InstanceColumn {
    /// The column that holds an attribute of SOL003, if one does.
    pub fn of_attribute(attribute: &str) -> Option<Self> {
        Some(match attribute {
            "id" => Self::Id,
            "vnfInstanceName" => Self::Name,
            "vnfdId" => Self::Vnfd,
            "vnfProvider" => Self::Provider,
            "vnfProductName" => Self::Product,
            "instantiationState" => Self::State,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Name => "name",
            Self::Vnfd => "vnfd_id",
            Self::Provider => "provider",
            Self::Product => "product",
            Self::State => "state",
        }
    }
}

/// All of an instance but what it consists of.
fn head(instance: &Instance) -> String {
    let Value::Object(mut head) = serde_json::to_value(instance).expect("plain data") else {
        unreachable!("a struct is an object")
    };
    head.remove("info");
    Value::Object(head).to_string()
}

fn parse(row: &Row, body: bool) -> Result<Instance, StoreError> {
    let mut instance: Instance = row.json(2)?;
    instance.rev = row.int(1)?;
    instance.operation = row.text_or_none(3)?.and_then(|id| id.parse().ok());
    if body && let Some(text) = row.text_or_none(4)? {
        let info: Info = serde_json::from_str(&text)
            .map_err(|error| StoreError::damaged("body", sqlx::Error::Decode(error.into())))?;
        instance.info = Some(info);
    }
    Ok(instance)
}

fn state_word(state: InstantiationState) -> &'static str {
    match state {
        InstantiationState::Instantiated => "INSTANTIATED",
        InstantiationState::NotInstantiated => "NOT_INSTANTIATED",
    }
}
