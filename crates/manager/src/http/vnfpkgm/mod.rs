//! Package management: `/vnfpkgm/v1` (SOL003 2.6.1 for reading, SOL005 for the rest, as Tacker has it).

mod content;
mod range;
mod render;

use http::header;

use self::render::{PACKAGE, VnfPkgInfo};
use super::{Access, Answer, Call, PKGM_V1, Reply, Route, page, problem};
use crate::{
    app::packages::{
        self, Announced, CreateVnfPkgInfoRequest, UploadFromUriRequest, VnfPkgInfoModifications,
    },
    domain::{AppError, ErrorKind, PackageId, PackageRecord, UsageState},
};

const ID: &str = "vnfPkgId";
const TAG: &str = "vnfpkgm v1";
const PACKAGES: &str = "/vnfpkgm/v1/vnf_packages";
const ONE: &str = "/vnfpkgm/v1/vnf_packages/{vnfPkgId}";
const CONTENT: &str = "/vnfpkgm/v1/vnf_packages/{vnfPkgId}/package_content";
const FROM_URI: &str = "/vnfpkgm/v1/vnf_packages/{vnfPkgId}/package_content/upload_from_uri";
const VNFD: &str = "/vnfpkgm/v1/vnf_packages/{vnfPkgId}/vnfd";
const ARTIFACT: &str = "/vnfpkgm/v1/vnf_packages/{vnfPkgId}/artifacts/{*artifactPath}";
const ZIP: &str = "application/zip";
const OCTETS: &str = "application/octet-stream";
/// What uploads may call themselves: the first by the standard, the others by tools that know no better.
const UPLOADS: &[&str] = &[ZIP, OCTETS, "application/x-zip-compressed"];

/// The routes.
pub fn routes() -> Vec<Route> {
    let routes = vec![
        Route::get(PACKAGES, Access::Reader, list)
            .doc(TAG, "Packages")
            .listing()
            .answers::<Vec<VnfPkgInfo>>(200, "A page of packages"),
        Route::post(PACKAGES, Access::Operator, create)
            .doc(TAG, "Create a package, which has no content yet")
            .may_take::<CreateVnfPkgInfoRequest>()
            .answers::<VnfPkgInfo>(201, "The package"),
        Route::get(ONE, Access::Reader, show).doc(TAG, "A package").answers::<VnfPkgInfo>(200, "The package"),
        Route::patch(ONE, Access::Operator, modify)
            .doc(TAG, "Enable or disable a package, or change its free attributes")
            .takes::<VnfPkgInfoModifications>()
            .answers::<VnfPkgInfoModifications>(200, "What was changed, as it is now"),
        Route::delete(ONE, Access::Operator, delete)
            .doc(TAG, "Delete a package that is disabled and not in use, or not onboarded")
            .answers_nothing(204, "It is gone"),
        Route::put(CONTENT, Access::Operator, upload)
            .doc(TAG, "Upload a package's content")
            .takes_bytes(UPLOADS)
            .answers_nothing(202, "It is there and is being read; the package says what comes of it"),
        Route::get(CONTENT, Access::Reader, content::package)
            .doc(TAG, "A package's content, or a part of it")
            .answers_media(200, ZIP, "The content")
            .answers_media(206, ZIP, "The part that Range asks for")
            .answers_media(409, problem::MEDIA, "It is not onboarded"),
        Route::post(FROM_URI, Access::Operator, upload_from_uri)
            .doc(TAG, "Have a package's content fetched")
            .takes::<UploadFromUriRequest>()
            .answers_nothing(202, "It is being fetched; the package says what comes of it"),
        Route::get(VNFD, Access::Reader, content::vnfd)
            .doc(TAG, "The descriptor: text if it is one file, else a ZIP")
            .answers_media(200, "text/plain", "The one file that it is")
            .answers_media(200, ZIP, "All files that it is")
            .answers_media(409, problem::MEDIA, "It is not onboarded"),
        Route::get(ARTIFACT, Access::Reader, content::artifact)
            .doc(TAG, "A file of the package, or a part of it")
            .answers_media(200, OCTETS, "The file")
            .answers_media(206, OCTETS, "The part that Range asks for")
            .answers_media(409, problem::MEDIA, "It is not onboarded"),
    ];
    routes.into_iter().map(|route| route.api(PKGM_V1)).collect()
}

async fn list(call: Call) -> Answer {
    let listing = call.listing(&PACKAGE)?;
    let call_ref = &call;
    page(&call, &listing, async |after: Option<String>, limit: u32| {
        let after = after.and_then(|id| id.parse().ok());
        let packages = call_ref.app.store.packages_with_usage(after, limit).await?;
        let shown = packages
            .iter()
            .map(|(package, usage)| (package.id.to_string(), render::package(call_ref, package, *usage)));
        Ok::<_, AppError>(shown.collect())
    })
    .await
}

async fn create(mut call: Call) -> Answer {
    let request: CreateVnfPkgInfoRequest = call.json_or_empty().await?;
    let package = packages::create(&call.app, request).await?;
    let shown = render::package(&call, &package, UsageState::NotInUse);
    Ok(Reply::created(&location(&call, package.id), &shown).with_etag(tag(&package, UsageState::NotInUse)))
}

async fn show(call: Call) -> Answer {
    let package = packages::settled(&call.app, call.id(ID)?).await?;
    let usage = usage(&call, package.id).await?;
    Ok(Reply::ok(&render::package(&call, &package, usage)).with_etag(tag(&package, usage)))
}

async fn modify(mut call: Call) -> Answer {
    let id: PackageId = call.id(ID)?;
    let request: VnfPkgInfoModifications = call.json().await?;
    let usage = usage(&call, id).await?;
    let changed =
        packages::modify(&call.app, id, &request, |package| call.if_match(tag(package, usage))).await?;
    let shown = VnfPkgInfoModifications {
        operational_state: request.operational_state.map(|_| changed.operational),
        user_defined_data: request.user_defined_data.map(|_| Some(changed.user_defined.clone())),
    };
    Ok(Reply::ok(&shown).with_etag(tag(&changed, usage)))
}

async fn delete(call: Call) -> Answer {
    let id: PackageId = call.id(ID)?;
    let usage = usage(&call, id).await?;
    packages::delete(&call.app, id, |package| call.if_match(tag(package, usage))).await?;
    Ok(Reply::no_content())
}

async fn upload(mut call: Call) -> Answer {
    let checked = call.id::<PackageId>(ID).and_then(|id| check_media(&call).map(|()| id));
    let length = call.headers.get(header::CONTENT_LENGTH);
    let announced = Announced {
        length: length.and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok()),
        waits: call.headers.contains_key(header::EXPECT),
    };
    let mut body = call.body_stream();
    let id = match checked {
        Ok(id) => id,
        Err(error) => {
            if !announced.waits {
                packages::drain(&mut body).await;
            }
            return Err(error);
        }
    };
    packages::receive(&call.app, id, announced, body).await?;
    Ok(Reply::accepted(&location(&call, id)))
}

async fn upload_from_uri(mut call: Call) -> Answer {
    let id: PackageId = call.id(ID)?;
    let request: UploadFromUriRequest = call.json().await?;
    packages::fetch(&call.app, id, request).await?;
    Ok(Reply::accepted(&location(&call, id)))
}

fn check_media(call: &Call) -> Result<(), AppError> {
    let Some(value) = call.headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let text = value.to_str().unwrap_or("something unreadable");
    let essence = text.split(';').next().unwrap_or_default().trim();
    if UPLOADS.iter().any(|one| one.eq_ignore_ascii_case(essence)) {
        return Ok(());
    }
    Err(AppError::new(
        ErrorKind::MediaType,
        format!("Content-Type is {essence:?}; send the package itself as {ZIP}"),
    ))
}

async fn usage(call: &Call, id: PackageId) -> Result<UsageState, AppError> {
    let instances = call.app.store.instances_of(id).await?;
    Ok(if instances == 0 { UsageState::NotInUse } else { UsageState::InUse })
}

/// A package looks different when it changes and when the first instance follows it or the last one goes.
fn tag(package: &PackageRecord, usage: UsageState) -> String {
    match usage {
        UsageState::NotInUse => package.rev.to_string(),
        UsageState::InUse => format!("{}-used", package.rev),
    }
}

fn location(call: &Call, id: PackageId) -> String {
    call.url(&format!("{PACKAGES}/{id}"))
}

#[cfg(test)]
mod tests;
