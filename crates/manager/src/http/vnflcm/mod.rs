//! Lifecycle management: `/vnflcm/v1` (SOL003 2.6.1) and `/vnflcm/v2` (SOL003 3.3.1).
//!
//! Both versions are the same operations; what differs is how instances and operations look, and that is `render`'s.

mod instances;
mod operations;
mod render;

use super::{ApiVersions, Route, route};
use crate::domain::Api;

/// The routes.
pub fn routes() -> Vec<Route> {
    let mut routes = Vec::new();
    for version in [V1, V2] {
        routes.extend(instances::routes(&version));
        routes.extend(operations::routes(&version));
    }
    routes
}

/// One version of the interface.
pub(super) struct Version {
    api: ApiVersions,
    tag: &'static str,
    instances: &'static str,
    instance: &'static str,
    tasks: &'static [(&'static str, &'static str)],
    operations: &'static str,
    operation: &'static str,
    wishes: &'static [(&'static str, &'static str)],
}

const V1: Version = Version {
    api: route::LCM_V1,
    tag: "vnflcm v1",
    instances: "/vnflcm/v1/vnf_instances",
    instance: "/vnflcm/v1/vnf_instances/{vnfInstanceId}",
    tasks: &[
        ("instantiate", "/vnflcm/v1/vnf_instances/{vnfInstanceId}/instantiate"),
        ("scale", "/vnflcm/v1/vnf_instances/{vnfInstanceId}/scale"),
        ("scale_to_level", "/vnflcm/v1/vnf_instances/{vnfInstanceId}/scale_to_level"),
        ("change_flavour", "/vnflcm/v1/vnf_instances/{vnfInstanceId}/change_flavour"),
        ("operate", "/vnflcm/v1/vnf_instances/{vnfInstanceId}/operate"),
        ("heal", "/vnflcm/v1/vnf_instances/{vnfInstanceId}/heal"),
        ("change_ext_conn", "/vnflcm/v1/vnf_instances/{vnfInstanceId}/change_ext_conn"),
        ("change_vnfpkg", "/vnflcm/v1/vnf_instances/{vnfInstanceId}/change_vnfpkg"),
        ("terminate", "/vnflcm/v1/vnf_instances/{vnfInstanceId}/terminate"),
    ],
    operations: "/vnflcm/v1/vnf_lcm_op_occs",
    operation: "/vnflcm/v1/vnf_lcm_op_occs/{vnfLcmOpOccId}",
    wishes: &[
        ("retry", "/vnflcm/v1/vnf_lcm_op_occs/{vnfLcmOpOccId}/retry"),
        ("rollback", "/vnflcm/v1/vnf_lcm_op_occs/{vnfLcmOpOccId}/rollback"),
        ("fail", "/vnflcm/v1/vnf_lcm_op_occs/{vnfLcmOpOccId}/fail"),
        ("cancel", "/vnflcm/v1/vnf_lcm_op_occs/{vnfLcmOpOccId}/cancel"),
    ],
};

const V2: Version = Version {
    api: route::LCM_V2,
    tag: "vnflcm v2",
    instances: "/vnflcm/v2/vnf_instances",
    instance: "/vnflcm/v2/vnf_instances/{vnfInstanceId}",
    tasks: &[
        ("instantiate", "/vnflcm/v2/vnf_instances/{vnfInstanceId}/instantiate"),
        ("scale", "/vnflcm/v2/vnf_instances/{vnfInstanceId}/scale"),
        ("scale_to_level", "/vnflcm/v2/vnf_instances/{vnfInstanceId}/scale_to_level"),
        ("change_flavour", "/vnflcm/v2/vnf_instances/{vnfInstanceId}/change_flavour"),
        ("operate", "/vnflcm/v2/vnf_instances/{vnfInstanceId}/operate"),
        ("heal", "/vnflcm/v2/vnf_instances/{vnfInstanceId}/heal"),
        ("change_ext_conn", "/vnflcm/v2/vnf_instances/{vnfInstanceId}/change_ext_conn"),
        ("change_vnfpkg", "/vnflcm/v2/vnf_instances/{vnfInstanceId}/change_vnfpkg"),
        ("terminate", "/vnflcm/v2/vnf_instances/{vnfInstanceId}/terminate"),
    ],
    operations: "/vnflcm/v2/vnf_lcm_op_occs",
    operation: "/vnflcm/v2/vnf_lcm_op_occs/{vnfLcmOpOccId}",
    wishes: &[
        ("retry", "/vnflcm/v2/vnf_lcm_op_occs/{vnfLcmOpOccId}/retry"),
        ("rollback", "/vnflcm/v2/vnf_lcm_op_occs/{vnfLcmOpOccId}/rollback"),
        ("fail", "/vnflcm/v2/vnf_lcm_op_occs/{vnfLcmOpOccId}/fail"),
        ("cancel", "/vnflcm/v2/vnf_lcm_op_occs/{vnfLcmOpOccId}/cancel"),
    ],
};

/// Which version was called.
fn api_of(call: &super::Call) -> Api {
    if call.api == Some(route::LCM_V1) { Api::LcmV1 } else { Api::LcmV2 }
}
