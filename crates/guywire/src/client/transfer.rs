//! Files to and from a manager, bit by bit, with a bar on a terminal.

use std::{
    io::{IsTerminal as _, Write},
    path::Path,
};

use anyhow::{Context as _, bail};
use futures::TryStreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::{Method, header};
use tokio_util::io::ReaderStream;

use super::Client;

/// Sends a file's content.
pub async fn upload(client: &Client, path: &str, file: &Path) -> anyhow::Result<()> {
    let name = file.display();
    let opened = tokio::fs::File::open(file).await.with_context(|| format!("{name}: cannot be opened"))?;
    let found = opened.metadata().await.with_context(|| format!("{name}: cannot be looked at"))?;
    if !found.is_file() {
        bail!(
            "{name}: this is no file; a package is a ZIP archive, and `guywire package pack DIR` makes one of a directory"
        );
    }
    let bar = bar(found.len());
    let shown = bar.clone();
    let stream =
        ReaderStream::with_capacity(opened, 64 << 10).inspect_ok(move |chunk| shown.inc(chunk.len() as u64));
    let request = client
        .request(Method::PUT, path, &[])?
        .header(header::CONTENT_TYPE, "application/zip")
        .header(header::CONTENT_LENGTH, found.len())
        .body(reqwest::Body::wrap_stream(stream));
    let sent = client.send(request).await;
    bar.finish_and_clear();
    sent.map(drop)
}

/// Saves an answer into a file that is not there yet, or prints it.
pub async fn download(client: &Client, path: &str, accept: &str, file: Option<&Path>) -> anyhow::Result<u64> {
    let request = client.request(Method::GET, path, &[])?.header(header::ACCEPT, accept);
    let mut response = client.send(request).await?;
    let bar = bar(response.content_length().unwrap_or(0));
    // Nothing else waits for this program, so it may block while it writes.
    let mut out: Box<dyn Write> = match file {
        Some(file) => Box::new(
            std::fs::File::create_new(file)
                .with_context(|| format!("{}: cannot be made; choose another name", file.display()))?,
        ),
        None => Box::new(std::io::stdout()),
    };
    let mut length = 0;
    let saved: anyhow::Result<()> = async {
        while let Some(chunk) = response.chunk().await.context("the manager stopped in the middle")? {
            length += chunk.len() as u64;
            bar.set_position(length);
            out.write_all(&chunk).context("it cannot be written")?;
        }
        out.flush().context("it cannot be written")
    }
    .await;
    bar.finish_and_clear();
    if let (Err(error), Some(file)) = (&saved, file)
        && let Err(removal) = std::fs::remove_file(file)
    {
        eprintln!("{}: is not whole ({error}) and cannot be removed: {removal}", file.display());
    }
    saved.map(|()| length)
}

fn bar(length: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length);
    let style = ProgressStyle::with_template(
        "{elapsed:>4} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} about {eta} left",
    );
    bar.set_style(style.expect("the template is a constant").progress_chars("━╸ "));
    bar
}
