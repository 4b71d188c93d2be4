//! The manager's nouns as plain values, apart from how they look on the wire and in the database.

mod alarm;
mod credential;
mod ids;
mod instance;
mod operation;
mod package;
mod problem;
mod subscription;
mod vim;

pub use alarm::{AckState, Alarm, EventType, Severity};
pub use credential::{Credential, CredentialKind, Role};
pub use ids::{AlarmId, InstanceId, OperationId, PackageId, SubscriptionId, VimId};
pub use instance::{ExtLink, Info, Instance, InstantiationState, VnfState, Vnfc};
pub use operation::{
    Affected, CancelMode, ChangeType, Direction, GrantId, Operation, OperationState, OperationType, Stage,
    Target,
};
pub use package::{OnboardingState, OperationalState, PackageRecord, UsageState};
pub use problem::{AppError, ErrorKind, Problem};
pub use subscription::{
    Api, CallbackAuth, FaultFilter, Filter, InstanceFilter, Notice, PackageFilter, Subscription, Verbosity,
};
pub use vim::{Vim, VimConnection, VimType};

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all that is written");
        text
    })
}
