//! Alarms (SOL003 fault management).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{AlarmId, InstanceId};

/// Something that a person should know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alarm {
    /// Its id.
    pub id: AlarmId,
    /// Counts changes; every write is conditional on it.
    #[serde(skip)]
    pub rev: i64,
    /// The instance.
    pub instance: InstanceId,
    /// Names what is wrong, so that the same trouble raises one alarm: `operation/ID`, `machine/NAME`.
    pub key: String,
    /// The component's name, if it is one component's trouble.
    pub vnfc: Option<String>,
    /// The resource at fault, if it is one: the caller's name of its VIM, and its id there.
    #[serde(default)]
    pub resource: Option<(String, uuid::Uuid)>,
    /// When it was raised.
    pub raised: Timestamp,
    /// When it changed last.
    pub changed: Option<Timestamp>,
    /// When the trouble was over.
    pub cleared: Option<Timestamp>,
    /// Whether somebody has seen it.
    pub ack: AckState,
    /// When somebody said so.
    #[serde(default)]
    pub acknowledged: Option<Timestamp>,
    /// How bad it is.
    pub severity: Severity,
    /// When the trouble was seen.
    pub event_time: Timestamp,
    /// What kind of trouble it is.
    pub event_type: EventType,
    /// The probable cause, in words.
    pub cause: String,
    /// More, for a person: what is wrong and what to do.
    pub details: Vec<String>,
}

/// Whether somebody has seen an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AckState {
    /// Not yet.
    Unacknowledged,
    /// Somebody has.
    Acknowledged,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Severity {
    /// The service is gone.
    Critical,
    /// The service suffers.
    Major,
    /// It does not, yet.
    Minor,
    /// It may.
    Warning,
    /// Nobody knows.
    Indeterminate,
    /// It is over.
    Cleared,
}

/// What kind of trouble it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EventType {
    /// Nobody can be reached.
    CommunicationsAlarm,
    /// Something was not done.
    ProcessingErrorAlarm,
    /// Heat, fire, water.
    EnvironmentalAlarm,
    /// Too slow.
    QosAlarm,
    /// A machine.
    EquipmentAlarm,
}

impl Severity {
    /// The word of SOL003.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "CRITICAL",
            Self::Major => "MAJOR",
            Self::Minor => "MINOR",
            Self::Warning => "WARNING",
            Self::Indeterminate => "INDETERMINATE",
            Self::Cleared => "CLEARED",
        }
    }
}
