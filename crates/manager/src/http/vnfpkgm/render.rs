//! How packages look (`VnfPkgInfo`).

use std::collections::BTreeMap;

use guywire_package::{Artifact, ArtifactKind, Image, Rejection, Vnfd};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    domain::{OnboardingState, OperationalState, PackageId, PackageRecord, UsageState},
    http::Call,
    sol013::Resource,
};

/// Attributes of a package.
pub(super) static PACKAGE: Resource = Resource {
    name: "VnfPkgInfo",
    mandatory: &["id", "onboardingState", "operationalState", "usageState", "_links"],
    optional: &[
        "vnfdId",
        "vnfProvider",
        "vnfProductName",
        "vnfSoftwareVersion",
        "vnfdVersion",
        "vnfmInfo",
        "signingCertificate",
        "checksum",
        "softwareImages",
        "additionalArtifacts",
        "userDefinedData",
        "onboardingFailureDetails",
        "warnings",
    ],
    excluded: &[
        "checksum",
        "softwareImages",
        "additionalArtifacts",
        "userDefinedData",
        "onboardingFailureDetails",
        "warnings",
    ],
    heavy: &[],
};

/// A package.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct VnfPkgInfo {
    id: PackageId,
    #[serde(flatten)]
    described: Option<Described>,
    onboarding_state: OnboardingState,
    operational_state: OperationalState,
    usage_state: UsageState,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    user_defined_data: Map<String, Value>,
    /// Why content was not taken the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    onboarding_failure_details: Option<FailureDetails>,
    #[serde(rename = "_links")]
    links: BTreeMap<&'static str, Link>,
}

/// What is known of a package once it was onboarded.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Described {
    vnfd_id: String,
    vnf_provider: String,
    vnf_product_name: String,
    vnf_software_version: String,
    vnfd_version: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    vnfm_info: Vec<String>,
    checksum: Checksum,
    software_images: Vec<SoftwareImage>,
    additional_artifacts: Vec<AdditionalArtifact>,
    /// The subject of the certificate that the package is signed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    signing_certificate: Option<String>,
    /// What was accepted with a doubt; an attribute of our own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Problem details of a failed onboarding.
#[derive(Serialize, JsonSchema)]
struct FailureDetails {
    status: u16,
    title: &'static str,
    detail: String,
    /// The file inside the package that is to blame; an attribute of our own.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// The line in it; an attribute of our own.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

/// A hash.
#[derive(Serialize, JsonSchema)]
struct Checksum {
    algorithm: String,
    hash: String,
}

/// An image (`VnfPackageSoftwareImageInfo`).
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SoftwareImage {
    id: String,
    name: String,
    provider: String,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum: Option<Checksum>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container_format: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_format: Option<String>,
    created_at: String,
    min_disk: u64,
    min_ram: u64,
    size: u64,
    user_metadata: Map<String, Value>,
    image_path: String,
}

/// Another file (`VnfPackageArtifactInfo`).
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AdditionalArtifact {
    artifact_path: String,
    checksum: Checksum,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

/// A link.
#[derive(Serialize, JsonSchema)]
struct Link {
    href: String,
}

/// A package, with all that may be shown of it.
pub(super) fn package(call: &Call, package: &PackageRecord, usage: UsageState) -> Value {
    json!(VnfPkgInfo {
        id: package.id,
        described: package.vnfd.as_ref().map(|vnfd| described(package, vnfd)),
        onboarding_state: package.onboarding,
        operational_state: package.operational,
        usage_state: usage,
        user_defined_data: package.user_defined.clone(),
        onboarding_failure_details: package.failure.as_ref().map(|failure| details(package, failure)),
        links: links(package, |path| call.url(path)),
    })
}

fn described(package: &PackageRecord, vnfd: &Vnfd) -> Described {
    let others = package.artifacts.iter().filter(|artifact| artifact.kind != ArtifactKind::SoftwareImage);
    Described {
        vnfd_id: vnfd.id.clone(),
        vnf_provider: vnfd.provider.clone(),
        vnf_product_name: vnfd.product_name.clone(),
        vnf_software_version: vnfd.software_version.clone(),
        vnfd_version: vnfd.version.clone(),
        vnfm_info: vnfd.vnfm_info.clone(),
        checksum: Checksum {
            algorithm: "SHA-256".to_owned(),
            hash: package.content.as_ref().map(|(_, _, sha256)| sha256.clone()).unwrap_or_default(),
        },
        software_images: images(package, vnfd),
        additional_artifacts: others
            .map(|artifact| AdditionalArtifact {
                artifact_path: artifact.path.clone(),
                checksum: checksum(artifact),
                metadata: artifact.metadata.clone(),
            })
            .collect(),
        signing_certificate: package.signer.clone(),
        warnings: package.warnings.clone(),
    }
}

/// Every image once, though several flavours may use it.
fn images(package: &PackageRecord, vnfd: &Vnfd) -> Vec<SoftwareImage> {
    let mut all: BTreeMap<&str, &Image> = BTreeMap::new();
    for flavour in &vnfd.flavours {
        let machines = flavour.vdus.iter().filter_map(|vdu| vdu.image.as_ref());
        let volumes = flavour.storages.iter().filter_map(|storage| storage.image.as_ref());
        for image in machines.chain(volumes) {
            all.entry(&image.id).or_insert(image);
        }
    }
    all.into_values().map(|image| software_image(package, vnfd, image)).collect()
}

fn software_image(package: &PackageRecord, vnfd: &Vnfd, image: &Image) -> SoftwareImage {
    let file = image.file.as_ref();
    let artifact = package.artifacts.iter().find(|artifact| Some(&artifact.path) == file);
    let declared = image
        .checksum
        .as_ref()
        .map(|sum| Checksum { algorithm: sum.algorithm.to_uppercase(), hash: sum.hash.clone() });
    SoftwareImage {
        id: image.id.clone(),
        name: image.name.clone(),
        provider: vnfd.provider.clone(),
        version: image.version.clone().unwrap_or_else(|| vnfd.software_version.clone()),
        checksum: declared.or_else(|| artifact.map(checksum)),
        container_format: image.container_format.as_ref().map(|format| format.to_uppercase()),
        disk_format: image.disk_format.as_ref().map(|format| format.to_uppercase()),
        created_at: package.created.to_string(),
        min_disk: image.min_disk_bytes.unwrap_or(0),
        min_ram: image.min_ram_bytes.unwrap_or(0),
        size: image.size_bytes.or(artifact.map(|artifact| artifact.size)).unwrap_or(0),
        user_metadata: Map::new(),
        image_path: image.file.clone().or_else(|| image.uri.clone()).unwrap_or_default(),
    }
}

fn checksum(artifact: &Artifact) -> Checksum {
    Checksum { algorithm: artifact.algorithm.to_uppercase(), hash: artifact.hash.clone() }
}

fn details(package: &PackageRecord, failure: &Rejection) -> FailureDetails {
    let status = package.failure_status.unwrap_or(422);
    let known = http::StatusCode::from_u16(status).ok();
    FailureDetails {
        status,
        title: known.and_then(|known| known.canonical_reason()).unwrap_or("Onboarding failed"),
        detail: failure.to_string(),
        file: (failure.file != "package").then(|| failure.file.clone()),
        line: failure.line,
    }
}

/// What can be done with a package as it is.
fn links(package: &PackageRecord, url: impl Fn(&str) -> String) -> BTreeMap<&'static str, Link> {
    let own = format!("{}/{}", super::PACKAGES, package.id);
    let link = |rest: &str| Link { href: url(&format!("{own}{rest}")) };
    let mut links = BTreeMap::from([("self", link("")), ("packageContent", link("/package_content"))]);
    match package.onboarding {
        OnboardingState::Created => {
            links.insert("uploadFromUri", link("/package_content/upload_from_uri"));
        }
        OnboardingState::Onboarded => {
            links.insert("vnfd", link("/vnfd"));
        }
        OnboardingState::Uploading | OnboardingState::Processing => {}
    }
    links
}
