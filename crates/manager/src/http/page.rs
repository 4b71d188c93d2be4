//! One page of a list as an answer.

use http::header;
use serde_json::Value;

use super::{Answer, Call, Reply};
use crate::{domain::AppError, sol013::Listing};

/// Gathers a page with `fetch` (entries with their ids after an id, in the order of ids, up to a number) and answers
/// with it; where more follow, a `Link` says how to get them.
pub async fn page<F, R>(call: &Call, listing: &Listing, fetch: F) -> Answer
where
    F: FnMut(Option<String>, u32) -> R,
    R: Future<Output = Result<Vec<(String, Value)>, AppError>>,
{
    let (entries, last) = listing.collect(fetch).await?;
    let reply = Reply::ok(&entries);
    Ok(match last {
        Some(last) => reply.with_header(header::LINK, &listing.next_link(&call.app.config.url, &last)),
        None => reply,
    })
}
