//! The console's files, which are part of the program.

use http::header;

use crate::{
    domain::AppError,
    http::{Access, Answer, Call, Reply, Route},
};

/// Nothing from elsewhere, nothing inline, no frames: what a page shows is ours or is not shown.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A file: its path, its media type, its content.
struct File(&'static str, &'static str, &'static str);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

static INDEX: File = File("/console/", HTML, include_str!("../../../console/index.html"));

static FILES: &[File] = &[
    File("/console/style.css", CSS, include_str!("../../../console/style.css")),
    File("/console/main.js", SCRIPT, include_str!("../../../console/main.js")),
    File("/console/api.js", SCRIPT, include_str!("../../../console/api.js")),
    File("/console/dom.js", SCRIPT, include_str!("../../../console/dom.js")),
    File("/console/pages.js", SCRIPT, include_str!("../../../console/pages.js")),
    File("/console/operation.js", SCRIPT, include_str!("../../../console/operation.js")),
    File("/console/icon.svg", "image/svg+xml", include_str!("../../../console/icon.svg")),
];

/// The routes: open, since they are the same for everybody and say nothing about anything that is managed.
pub(super) fn routes() -> Vec<Route> {
    FILES
        .iter()
        .map(|file| {
            Route::get(file.0, Access::Open, show)
                .doc("console", "A file of the console")
                .answers_media(200, file.1, "The file")
        })
        .collect()
}

/// The first page, for whoever asks `/` for HTML.
#[expect(clippy::unused_async, reason = "a handler is asynchronous, whatever it does")]
pub async fn index(_call: Call) -> Answer {
    Ok(reply(&INDEX).with_header(header::VARY, "Accept"))
}

#[expect(clippy::unused_async, reason = "a handler is asynchronous, whatever it does")]
async fn show(call: Call) -> Answer {
    let file = FILES.iter().find(|file| file.0 == call.path);
    let file = file.ok_or_else(|| AppError::not_found("the console has no such file"))?;
    Ok(reply(file))
}

fn reply(file: &File) -> Reply {
    Reply::bytes(file.1, file.2)
        .with_content_etag()
        .with_header(header::CONTENT_SECURITY_POLICY, POLICY)
        .with_header(header::REFERRER_POLICY, "no-referrer")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every address of ours that a file names in quotes.
    fn named(text: &str) -> Vec<&str> {
        let quoted = text.split('"').filter(|part| part.starts_with("/console/") && part.contains('.'));
        quoted.collect()
    }

    #[test]
    fn whatever_a_file_names_is_served() {
        let files: Vec<&File> = FILES.iter().chain([&INDEX]).collect();
        for file in &files {
            for name in named(file.2) {
                assert!(
                    FILES.iter().any(|known| known.0 == name),
                    "{} names {name}, which is not served",
                    file.0
                );
            }
        }
        for file in FILES {
            let is_used = files.iter().any(|other| named(other.2).contains(&file.0));
            assert!(is_used, "{} is served and nobody names it", file.0);
        }
    }

    #[test]
    fn nothing_is_inline_and_no_data_becomes_markup() {
        for file in FILES.iter().chain([&INDEX]) {
            let File(path, media, text) = file;
            for word in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "javascript:"]
            {
                assert!(!text.contains(word), "{path}: {word}");
            }
            if *media == HTML {
                let word =
                    ["<style", "style=", "onclick", "<script>"].into_iter().find(|word| text.contains(word));
                assert_eq!(word, None, "{path}: the page's own policy refuses that");
            }
            // Names of XML namespaces are no addresses that anybody asks.
            let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
            assert!(
                !elsewhere.contains("http://") && !elsewhere.contains("https://"),
                "{path}: from elsewhere"
            );
        }
    }
}
