//! Requests for subscriptions as SOL003 has them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::{
    Api, AppError, EventType, FaultFilter, Filter, InstanceFilter, OperationState, OperationType,
    OperationalState, PackageFilter, Severity, UsageState, Verbosity,
};

/// What a request of any interface asks for.
#[derive(Debug)]
pub struct Wanted {
    /// Where notifications go.
    pub callback: String,
    /// Which ones.
    pub filter: Filter,
    /// How much is told.
    pub verbosity: Verbosity,
    /// How we prove who we are.
    pub authentication: Option<Authentication>,
}

/// `LccnSubscriptionRequest` of SOL003 2.6.1.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LccnSubscriptionRequest {
    /// Which notifications; all if it is missing.
    #[serde(default)]
    pub filter: Option<LccnFilter>,
    /// Where notifications go.
    pub callback_uri: String,
    /// How the manager proves to the callback who it is.
    #[serde(default)]
    pub authentication: Option<Authentication>,
}

/// `LccnSubscriptionRequest` of SOL003 3.3.1.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LccnSubscriptionRequestV2 {
    /// Which notifications; all if it is missing.
    #[serde(default)]
    pub filter: Option<LccnFilter>,
    /// Where notifications go.
    pub callback_uri: String,
    /// How the manager proves to the callback who it is.
    #[serde(default)]
    pub authentication: Option<Authentication>,
    /// How much notifications tell; all if it is missing.
    #[serde(default)]
    pub verbosity: Verbosity,
}

/// `PkgmSubscriptionRequest`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PkgmSubscriptionRequest {
    /// Which notifications; all if it is missing.
    #[serde(default)]
    pub filter: Option<PkgmFilter>,
    /// Where notifications go.
    pub callback_uri: String,
    /// How the manager proves to the callback who it is.
    #[serde(default)]
    pub authentication: Option<Authentication>,
}

/// `FmSubscriptionRequest`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FmSubscriptionRequest {
    /// Which notifications; all if it is missing.
    #[serde(default)]
    pub filter: Option<FmFilter>,
    /// Where notifications go.
    pub callback_uri: String,
    /// How the manager proves to the callback who it is.
    #[serde(default)]
    pub authentication: Option<Authentication>,
}

/// `LifecycleChangeNotificationsFilter`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LccnFilter {
    /// Which instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnf_instance_subscription_filter: Option<InstanceSubscriptionFilter>,
    /// Which kinds of notifications.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notification_types: Vec<String>,
    /// Which operations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operation_types: Vec<OperationType>,
    /// Which states of operations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operation_states: Vec<OperationState>,
}

/// `PkgmNotificationsFilter`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PkgmFilter {
    /// Which kinds of notifications.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notification_types: Vec<String>,
    /// Which products.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnf_products_from_providers: Vec<Provider>,
    /// Which descriptors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnfd_id: Vec<String>,
    /// Which packages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnf_pkg_id: Vec<String>,
    /// Whether they may be instantiated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operational_state: Vec<OperationalState>,
    /// Whether instances follow them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage_state: Vec<UsageState>,
    /// Which managers they work with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnfm_info: Vec<String>,
}

/// `FmNotificationsFilter`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FmFilter {
    /// Which instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnf_instance_subscription_filter: Option<InstanceSubscriptionFilter>,
    /// Which kinds of notifications.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notification_types: Vec<String>,
    /// Which kinds of resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faulty_resource_types: Vec<FaultyResourceType>,
    /// How bad.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub perceived_severities: Vec<Severity>,
    /// Which kinds of trouble.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_types: Vec<EventType>,
    /// Which causes, word for word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probable_causes: Vec<String>,
}

/// Kinds of resources at fault.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FaultyResourceType {
    /// Machines.
    Compute,
    /// Volumes.
    Storage,
    /// Networks.
    Network,
}

/// `VnfInstanceSubscriptionFilter`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstanceSubscriptionFilter {
    /// Of these descriptors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnfd_ids: Vec<String>,
    /// Of these products.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnf_products_from_providers: Vec<Provider>,
    /// With these ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnf_instance_ids: Vec<String>,
    /// With these names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnf_instance_names: Vec<String>,
}

/// Products of a provider; all if none is named.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Provider {
    /// The provider.
    pub vnf_provider: String,
    /// Its products.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnf_products: Vec<Product>,
}

/// Versions of a product; all if none is named.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Product {
    /// The product.
    pub vnf_product_name: String,
    /// Its versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<Version>,
}

/// Descriptors of a version; all if none is named.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Version {
    /// The version of the software.
    pub vnf_software_version: String,
    /// Versions of the descriptor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnfd_versions: Vec<String>,
}

/// `SubscriptionAuthentication`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Authentication {
    /// The ways that the callback takes; the first is used.
    pub auth_type: Vec<AuthType>,
    /// For `BASIC`.
    #[serde(default)]
    pub params_basic: Option<ParamsBasic>,
    /// For `OAUTH2_CLIENT_CREDENTIALS`.
    #[serde(default)]
    pub params_oauth2_client_credentials: Option<ParamsClientCredentials>,
    /// For `OAUTH2_CLIENT_CERT`.
    #[serde(default)]
    pub params_oauth2_client_cert: Option<ParamsClientCert>,
}

/// Ways to prove who we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AuthType {
    /// User and password.
    Basic,
    /// A token, got with a password.
    #[serde(rename = "OAUTH2_CLIENT_CREDENTIALS")]
    Oauth2ClientCredentials,
    /// A token, got with the manager's certificate.
    #[serde(rename = "OAUTH2_CLIENT_CERT")]
    Oauth2ClientCert,
    /// The manager's certificate.
    TlsCert,
}

/// User and password.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParamsBasic {
    /// The user.
    #[serde(default)]
    pub user_name: Option<String>,
    /// The password.
    #[serde(default)]
    pub password: Option<String>,
}

/// A client of a token endpoint.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParamsClientCredentials {
    /// The client.
    #[serde(default)]
    pub client_id: Option<String>,
    /// Its password.
    #[serde(default)]
    pub client_password: Option<String>,
    /// Where tokens come from.
    #[serde(default)]
    pub token_endpoint: Option<String>,
}

/// A client of a token endpoint that knows it by its certificate.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParamsClientCert {
    /// The client.
    pub client_id: String,
    /// The certificate that it knows.
    pub certificate_ref: CertificateRef,
    /// Where tokens come from.
    pub token_endpoint: String,
}

/// Names a certificate.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateRef {
    /// How it is named: `x5t#S256`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its fingerprint in base64url.
    pub value: String,
}

impl std::fmt::Debug for Authentication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Whatever else it holds may be secret.
        f.debug_struct("Authentication").field("auth_type", &self.auth_type).finish_non_exhaustive()
    }
}

impl LccnSubscriptionRequest {
    /// What is wanted.
    pub fn wanted(self) -> Result<Wanted, AppError> {
        let filter = self.filter.map(|filter| filter.domain(Api::LcmV1)).transpose()?.unwrap_or_default();
        let (callback, authentication) = (self.callback_uri, self.authentication);
        Ok(Wanted { callback, filter, verbosity: Verbosity::Full, authentication })
    }
}

impl LccnSubscriptionRequestV2 {
    /// What is wanted.
    pub fn wanted(self) -> Result<Wanted, AppError> {
        let filter = self.filter.map(|filter| filter.domain(Api::LcmV2)).transpose()?.unwrap_or_default();
        let (callback, authentication) = (self.callback_uri, self.authentication);
        Ok(Wanted { callback, filter, verbosity: self.verbosity, authentication })
    }
}

impl PkgmSubscriptionRequest {
    /// What is wanted.
    pub fn wanted(self) -> Result<Wanted, AppError> {
        let filter = self.filter.map(PkgmFilter::domain).transpose()?.unwrap_or_default();
        let (callback, authentication) = (self.callback_uri, self.authentication);
        Ok(Wanted { callback, filter, verbosity: Verbosity::Full, authentication })
    }
}

impl FmSubscriptionRequest {
    /// What is wanted.
    pub fn wanted(self) -> Result<Wanted, AppError> {
        let filter = self.filter.map(FmFilter::domain).transpose()?.unwrap_or_default();
        let (callback, authentication) = (self.callback_uri, self.authentication);
        Ok(Wanted { callback, filter, verbosity: Verbosity::Full, authentication })
    }
}

impl LccnFilter {
    fn domain(self, api: Api) -> Result<Filter, AppError> {
        check_types(api, &self.notification_types)?;
        Ok(Filter {
            given: Some(given(&self)),
            notification_types: self.notification_types,
            operation_types: self.operation_types,
            operation_states: self.operation_states,
            instances: self
                .vnf_instance_subscription_filter
                .map(InstanceSubscriptionFilter::domain)
                .unwrap_or_default(),
            ..Filter::default()
        })
    }
}

impl PkgmFilter {
    fn domain(self) -> Result<Filter, AppError> {
        check_types(Api::Pkgm, &self.notification_types)?;
        Ok(Filter {
            given: Some(given(&self)),
            notification_types: self.notification_types,
            instances: InstanceFilter {
                vnfd_ids: self.vnfd_id,
                products: self.vnf_products_from_providers.iter().map(given).collect(),
                ids: self.vnf_pkg_id,
                names: Vec::new(),
            },
            packages: PackageFilter {
                operational: self.operational_state,
                usage: self.usage_state,
                vnfm_info: self.vnfm_info,
            },
            ..Filter::default()
        })
    }
}

impl FmFilter {
    fn domain(self) -> Result<Filter, AppError> {
        check_types(Api::Fm, &self.notification_types)?;
        let resource_types = self.faulty_resource_types.iter().map(|kind| match kind {
            FaultyResourceType::Compute => "COMPUTE".to_owned(),
            FaultyResourceType::Storage => "STORAGE".to_owned(),
            FaultyResourceType::Network => "NETWORK".to_owned(),
        });
        Ok(Filter {
            given: Some(given(&self)),
            faults: FaultFilter {
                resource_types: resource_types.collect(),
                severities: self.perceived_severities,
                event_types: self.event_types,
                causes: self.probable_causes,
            },
            notification_types: self.notification_types,
            instances: self
                .vnf_instance_subscription_filter
                .map(InstanceSubscriptionFilter::domain)
                .unwrap_or_default(),
            ..Filter::default()
        })
    }
}

impl InstanceSubscriptionFilter {
    fn domain(self) -> InstanceFilter {
        InstanceFilter {
            vnfd_ids: self.vnfd_ids,
            products: self.vnf_products_from_providers.iter().map(given).collect(),
            ids: self.vnf_instance_ids,
            names: self.vnf_instance_names,
        }
    }
}

fn check_types(api: Api, types: &[String]) -> Result<(), AppError> {
    let known = api.notification_types();
    // SOL003 has this one too. Our list of alarms is never rebuilt, so it is fine to wait for it.
    let fine = |kind: &&String| {
        known.contains(&kind.as_str()) || (api == Api::Fm && *kind == "AlarmListRebuiltNotification")
    };
    match types.iter().find(|kind| !fine(kind)) {
        None => Ok(()),
        Some(wrong) => Err(AppError::invalid(format!(
            "filter.notificationTypes: {wrong:?} is not known at {}; known are {}",
            api.root(),
            known.join(", ")
        ))),
    }
}

fn given<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("filters are plain data that JSON can hold")
}
