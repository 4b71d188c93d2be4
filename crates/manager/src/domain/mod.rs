//! The manager's nouns as plain values, apart from how they look on the wire and in the database.

mod alarm;
mod ids;
mod instance;
mod operation;
mod package;
mod problem;
mod subscription;
mod vim;

pub use alarm::{AckState, Alarm, EventType, Severity};
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
