//! Whether a subscriber wants to hear of a change: the filters of SOL003. All conditions must hold; a list holds if
//! one of its values does, and an empty one always.

use serde_json::Value;

use crate::domain::{
    Alarm, FaultFilter, Instance, InstanceFilter, Notice, PackageFilter, PackageRecord, Subscription,
    UsageState,
};

/// Whether the subscriber wants to hear of this, told as a notification of that kind.
pub(super) fn wants(
    subscription: &Subscription,
    kind: &str,
    notice: &Notice,
    usage: Option<UsageState>,
) -> bool {
    let filter = &subscription.filter;
    if !one_of(&filter.notification_types, |wanted| wanted == kind) {
        return false;
    }
    match notice {
        Notice::Operation { operation, instance } => {
            // These two only say which operations: they do not keep other kinds of notifications away.
            one_of(&filter.operation_types, |wanted| *wanted == operation.operation)
                && one_of(&filter.operation_states, |wanted| *wanted == operation.state)
                && instance_fits(&filter.instances, instance)
        }
        Notice::InstanceCreated(instance) | Notice::InstanceDeleted(instance) => {
            instance_fits(&filter.instances, instance)
        }
        Notice::PackageOnboarded(package) | Notice::PackageChanged { package, .. } => {
            package_fits(&filter.instances, &filter.packages, package, usage)
        }
        Notice::Alarm { alarm, instance, cleared } => {
            fault_fits(&filter.faults, alarm, *cleared) && instance_fits(&filter.instances, instance)
        }
    }
}

fn instance_fits(filter: &InstanceFilter, instance: &Instance) -> bool {
    let product = Product {
        provider: &instance.provider,
        name: &instance.product,
        software: &instance.software_version,
        descriptor: &instance.vnfd_version,
    };
    let id = instance.id.to_string();
    one_of(&filter.vnfd_ids, |wanted| *wanted == instance.vnfd_id)
        && one_of(&filter.products, |wanted| product.fits(wanted))
        && one_of(&filter.ids, |wanted| wanted.eq_ignore_ascii_case(&id))
        && one_of(&filter.names, |wanted| instance.name.as_ref() == Some(wanted))
}

fn package_fits(
    filter: &InstanceFilter,
    more: &PackageFilter,
    package: &PackageRecord,
    usage: Option<UsageState>,
) -> bool {
    let Some(vnfd) = &package.vnfd else { return false };
    let product = Product {
        provider: &vnfd.provider,
        name: &vnfd.product_name,
        software: &vnfd.software_version,
        descriptor: &vnfd.version,
    };
    let id = package.id.to_string();
    one_of(&filter.vnfd_ids, |wanted| *wanted == vnfd.id)
        && one_of(&filter.products, |wanted| product.fits(wanted))
        && one_of(&filter.ids, |wanted| wanted.eq_ignore_ascii_case(&id))
        && one_of(&more.operational, |wanted| *wanted == package.operational)
        && one_of(&more.usage, |wanted| Some(*wanted) == usage)
        && one_of(&more.vnfm_info, |wanted| vnfd.vnfm_info.contains(wanted))
}

fn fault_fits(filter: &FaultFilter, alarm: &Alarm, cleared: bool) -> bool {
    // Machines are the only resources that alarms of ours are about.
    one_of(&filter.resource_types, |wanted| alarm.resource.is_some() && wanted == "COMPUTE")
        // A cleared alarm has no other severity any more, and whoever heard of it must hear that it is over.
        && (cleared || one_of(&filter.severities, |wanted| *wanted == alarm.severity))
        && one_of(&filter.event_types, |wanted| *wanted == alarm.event_type)
        && one_of(&filter.causes, |wanted| *wanted == alarm.cause)
}

/// What `vnfProductsFromProviders` looks at.
struct Product<'a> {
    provider: &'a str,
    name: &'a str,
    software: &'a str,
    descriptor: &'a str,
}

impl Product<'_> {
    /// Provider, then its products, then their versions, then the descriptors' versions; each level may be missing.
    fn fits(&self, wanted: &Value) -> bool {
        wanted["vnfProvider"] == self.provider
            && some_of(&wanted["vnfProducts"], |product| {
                product["vnfProductName"] == self.name
                    && some_of(&product["versions"], |version| {
                        version["vnfSoftwareVersion"] == self.software
                            && some_of(&version["vnfdVersions"], |vnfd| *vnfd == self.descriptor)
                    })
            })
    }
}

fn one_of<T>(wanted: &[T], fits: impl FnMut(&T) -> bool) -> bool {
    wanted.is_empty() || wanted.iter().any(fits)
}

fn some_of(wanted: &Value, fits: impl FnMut(&Value) -> bool) -> bool {
    wanted.as_array().is_none_or(|wanted| one_of(wanted, fits))
}
