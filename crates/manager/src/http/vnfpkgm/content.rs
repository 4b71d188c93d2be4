//! What packages hold: all of it, the descriptor, or one file.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek as _, SeekFrom},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use axum::body::Body;
use bytes::Bytes;
use guywire_package::{Archive, Limits, Package, Rejection};
use http::{StatusCode, header};
use tokio_stream::wrappers::ReceiverStream;

use super::{
    ID, OCTETS, ZIP,
    range::{Part, part},
};
use crate::{
    app::packages::{Shelf, find_onboarded},
    domain::{AppError, ErrorKind, PackageRecord},
    http::{Answer, Call, Reply, problem},
};

/// Sent at once.
const CHUNK: usize = 256 * 1024;
/// Chunks that wait for a slow reader.
const AHEAD: usize = 4;
const TEXT: &str = "text/plain";

/// The whole package.
pub(super) async fn package(call: Call) -> Answer {
    let package = find_onboarded(&call.app, call.id(ID)?).await?;
    expect(&call, &[ZIP])?;
    let (path, size, sha256) = place(&call, &package)?;
    send(&call, ZIP, size, &sha256, move || File::open(path).map_err(Trouble::Disk)).await
}

/// The descriptor.
pub(super) async fn vnfd(call: Call) -> Answer {
    let package = find_onboarded(&call.app, call.id(ID)?).await?;
    let (path, _, sha256) = place(&call, &package)?;
    let (text, zip) = (call.accepts(TEXT), call.accepts(ZIP));
    if let ([file], true) = (package.vnfd_files.as_slice(), text) {
        let name = file.clone();
        let bytes = blocking(move || read_whole(&path, &name)).await?;
        // Without a charset: clients compare the media type letter by letter.
        return Ok(Reply::bytes(TEXT, bytes).with_etag(format!("{sha256}-text")));
    }
    if !zip {
        let files = package.vnfd_files.len();
        let detail = if text {
            format!("the descriptor is {files} files, which are no text/plain; send `Accept: {ZIP}`")
        } else {
            format!(
                "Accept leaves out {TEXT} and {ZIP}, which is all that this has; send one of them or both"
            )
        };
        return Err(AppError::new(ErrorKind::NotAcceptable, detail));
    }
    let file = blocking(move || zipped(&path, &package)).await?;
    let size = file.metadata().map_err(|error| damaged(Trouble::Disk(error)))?.len();
    send(&call, ZIP, size, &format!("{sha256}-vnfd"), move || Ok(file)).await
}

/// One file of the package.
pub(super) async fn artifact(call: Call) -> Answer {
    let package = find_onboarded(&call.app, call.id(ID)?).await?;
    let name = call.param("artifactPath").to_owned();
    let (path, _, sha256) = place(&call, &package)?;
    let (looked, wanted) = (path.clone(), name.clone());
    let size = blocking(move || Ok(opened(&looked)?.size(&wanted)));
    let size = size.await?.ok_or_else(|| {
        AppError::not_found(format!(
            "artifactPath: package {} has no file {name:?}; additionalArtifacts lists those that it has",
            package.id
        ))
    })?;
    let known = package.artifacts.iter().find(|artifact| artifact.path == name);
    let media = known.and_then(|artifact| artifact.metadata.get("content_type"));
    let tag = crate::http::content_tag(format!("{sha256}/{name}").as_bytes());
    let reply = send(&call, OCTETS, size, &tag, move || {
        let mut archive = opened(&path)?;
        let entry = archive.entry(&name).map_err(Trouble::Package)?;
        entry.ok_or_else(|| Trouble::Disk(io::Error::from(io::ErrorKind::NotFound)))
    })
    .await?;
    // Packages come from strangers: a browser must not take a page in one for a page of ours.
    let reply = reply
        .with_header(header::CONTENT_DISPOSITION, "attachment")
        .with_header(header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'");
    let is_content = reply.status == StatusCode::OK || reply.status == StatusCode::PARTIAL_CONTENT;
    Ok(match media.filter(|_| is_content) {
        Some(media) => reply.with_header(header::CONTENT_TYPE, media),
        None => reply,
    })
}

/// Why content cannot be read.
enum Trouble {
    Disk(io::Error),
    Package(Rejection),
}

/// Something that can be read from a place on.
trait Content: Read + Send {
    fn skip_to(&mut self, from: u64) -> io::Result<()>;
}

impl Content for File {
    fn skip_to(&mut self, from: u64) -> io::Result<()> {
        self.seek(SeekFrom::Start(from)).map(drop)
    }
}

/// What is compressed has to be read to be passed over.
impl Content for guywire_package::EntryReader {
    fn skip_to(&mut self, from: u64) -> io::Result<()> {
        let passed = io::copy(&mut self.take(from), &mut io::sink())?;
        if passed == from { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// Sends what `open` opens, or the part of it that is asked for.
async fn send<C: Content + 'static>(
    call: &Call,
    media: &'static str,
    size: u64,
    tag: &str,
    open: impl FnOnce() -> Result<C, Trouble> + Send + 'static,
) -> Answer {
    let (from, count, status) = match part(&call.headers, size, &format!("\"{tag}\"")) {
        Part::Whole => (0, size, StatusCode::OK),
        Part::Bytes { from, count } => (from, count, StatusCode::PARTIAL_CONTENT),
        Part::Nothing => return Ok(no_such_part(size)),
    };
    let content = blocking(move || {
        let mut content = open()?;
        content.skip_to(from).map_err(Trouble::Disk)?;
        Ok(content)
    })
    .await?;
    let reply = Reply::stream(media, stream(content, count))
        .with_status(status)
        .with_etag(tag)
        .with_header(header::ACCEPT_RANGES, "bytes")
        .with_header(header::CONTENT_LENGTH, &count.to_string());
    Ok(if status == StatusCode::PARTIAL_CONTENT {
        let last = from + count - 1;
        reply.with_header(header::CONTENT_RANGE, &format!("bytes {from}-{last}/{size}"))
    } else {
        reply
    })
}

fn no_such_part(size: u64) -> Reply {
    let detail = format!("Range begins after the end: there are {size} bytes");
    let problem = AppError::new(ErrorKind::Range, detail).problem();
    Reply::json(StatusCode::RANGE_NOT_SATISFIABLE, &problem)
        .with_header(header::CONTENT_TYPE, problem::MEDIA)
        .with_header(header::CONTENT_RANGE, &format!("bytes */{size}"))
}

/// A content as a body: read on a thread that may block, a few chunks ahead of the reader at most.
fn stream<C: Content + 'static>(mut content: C, count: u64) -> Body {
    let (sender, receiver) = tokio::sync::mpsc::channel::<io::Result<Bytes>>(AHEAD);
    tokio::task::spawn_blocking(move || {
        let mut left = count;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let mut chunk = vec![0; most];
            let read = match content.read(&mut chunk) {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => Ok(read),
                Err(error) => Err(error),
            };
            let next = read.map(|read| {
                chunk.truncate(read);
                left -= read as u64;
                Bytes::from(chunk)
            });
            let broken = next.is_err();
            if let Err(error) = &next {
                tracing::error!(%error, "a package's content cannot be read to its end");
            }
            // Whoever does not read any more wants no more.
            if sender.blocking_send(next).is_err() || broken {
                return;
            }
        }
    });
    Body::from_stream(ReceiverStream::new(receiver))
}

fn place(call: &Call, package: &PackageRecord) -> Result<(PathBuf, u64, String), AppError> {
    let Some((name, size, sha256)) = &package.content else {
        return Err(AppError::new(ErrorKind::Internal, "the package has no content though it is ONBOARDED"));
    };
    Ok((Shelf::new(&call.app.config.data).content(name), *size, sha256.clone()))
}

fn expect(call: &Call, media: &[&str]) -> Result<(), AppError> {
    if media.iter().any(|media| call.accepts(media)) {
        return Ok(());
    }
    let media = media.join(" or ");
    Err(AppError::new(
        ErrorKind::NotAcceptable,
        format!("Accept leaves out {media}, which is all that this has; send `Accept: {media}`"),
    ))
}

/// What was onboarded once stays readable, though the site may take only smaller packages since.
fn opened(path: &Path) -> Result<Archive, Trouble> {
    let limits = Limits {
        entries: u32::MAX,
        unpacked_bytes: u64::MAX,
        ratio: u64::MAX,
        path_bytes: usize::MAX,
        ..Limits::default()
    };
    Archive::open(path, &limits).map_err(Trouble::Package)
}

fn read_whole(path: &Path, name: &str) -> Result<Vec<u8>, Trouble> {
    let mut archive = opened(path)?;
    let entry = archive.entry(name).map_err(Trouble::Package)?;
    let mut entry = entry.ok_or_else(|| Trouble::Disk(io::Error::from(io::ErrorKind::NotFound)))?;
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(Trouble::Disk)?;
    Ok(bytes)
}

/// The descriptor's files in a ZIP that has no name any more when it is read, so that nothing is left behind.
fn zipped(path: &Path, record: &PackageRecord) -> Result<File, Trouble> {
    let Some(vnfd) = record.vnfd.clone() else {
        return Err(Trouble::Disk(io::ErrorKind::NotFound.into()));
    };
    let package = Package {
        vnfd,
        vnfd_files: record.vnfd_files.clone(),
        artifacts: Vec::new(),
        signer: None,
        sha256: String::new(),
        size: 0,
        warnings: Vec::new(),
    };
    let scratch = path.with_file_name(format!(".vnfd-{}", uuid::Uuid::now_v7()));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let mut file = options.open(&scratch).map_err(Trouble::Disk)?;
    std::fs::remove_file(&scratch).map_err(Trouble::Disk)?;
    guywire_package::vnfd_zip(path, &package, &mut file).map_err(Trouble::Package)?;
    file.rewind().map_err(Trouble::Disk)?;
    Ok(file)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Trouble> + Send + 'static,
) -> Result<T, AppError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done
        .map_err(|error| AppError::new(ErrorKind::Internal, "the manager is about to stop").because(error))?;
    done.map_err(damaged)
}

/// Our own copy, which was found right once, cannot be read.
fn damaged(trouble: Trouble) -> AppError {
    let detail = "the package's content cannot be read from the manager's disk; see the manager's log";
    let error = AppError::new(ErrorKind::Unavailable, detail);
    match trouble {
        Trouble::Disk(source) => error.because(source),
        Trouble::Package(source) => error.because(source),
    }
}
