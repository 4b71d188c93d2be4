//! Takes secrets out of text before anybody sees it.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, RwLock},
};

use crate::{Secret, patterns::Patterns};

/// What stands in the place of a secret.
const MASK: &[u8] = b"***";

/// Knows secrets and replaces each, in plain, base64, JSON and shell-quoted form, by `***`.
///
/// Clones share what they know, so a secret that is added while output flows is masked from then on.
/// Secrets of fewer than four characters are not masked: so few turn up everywhere by chance.
#[derive(Clone)]
pub struct Masker {
    // The inner Arc is a snapshot that is read without holding the lock.
    patterns: Arc<RwLock<Arc<Patterns>>>,
}

/// Masks output that comes in chunks, also where a secret straddles them.
///
/// It holds back only what could be the beginning of a secret, at most the longest form less one byte.
pub struct MaskStream {
    masker: Masker,
    held: Vec<u8>,
    /// How many of the held bytes are known to belong to a secret.
    covered: usize,
    /// Whether the last byte that went out belonged to a secret, whose mask is out already.
    masking: bool,
}

impl Masker {
    /// One that knows `secrets`.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let masker = Self { patterns: Arc::new(RwLock::new(Arc::new(Patterns::new()))) };
        for secret in secrets {
            masker.add(secret);
        }
        masker
    }

    /// From now on this one is masked too, in all clones.
    pub fn add(&self, secret: &Secret) {
        // A writer that panicked left the old snapshot or the new one, both whole.
        let mut patterns = self.patterns.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        *patterns = Arc::new(patterns.with(secret));
    }

    /// `text` without secrets.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let patterns = self.snapshot();
        if !(0..text.len()).any(|at| patterns.match_at(&text.as_bytes()[at..]).is_some()) {
            return Cow::Borrowed(text);
        }
        let mut stream = self.stream();
        let mut out = stream.push(text.as_bytes());
        out.extend(stream.finish());
        Cow::Owned(match String::from_utf8(out) {
            Ok(text) => text,
            // A secret that is not text can end within a character.
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        })
    }

    /// A masker for one stream of output.
    pub fn stream(&self) -> MaskStream {
        MaskStream { masker: self.clone(), held: Vec::new(), covered: 0, masking: false }
    }

    fn snapshot(&self) -> Arc<Patterns> {
        Arc::clone(&self.patterns.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl Default for Masker {
    fn default() -> Self {
        Self::new([])
    }
}

impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Masker")
    }
}

impl MaskStream {
    /// Takes a chunk and gives what can be shown by now.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(chunk);
        let patterns = self.masker.snapshot();
        // Before the first place where a form could be incomplete, all is decided.
        let from = self.held.len().saturating_sub(patterns.longest().saturating_sub(1));
        let decided = (from..self.held.len())
            .find(|at| patterns.may_begin(&self.held[*at..]))
            .unwrap_or(self.held.len());
        self.give(&patterns, decided)
    }

    /// The rest, when the output has ended.
    pub fn finish(&mut self) -> Vec<u8> {
        let patterns = self.masker.snapshot();
        self.give(&patterns, self.held.len())
    }

    fn give(&mut self, patterns: &Patterns, decided: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(decided);
        for at in 0..decided {
            // Forms may overlap: a byte is hidden if any of them covers it.
            if let Some(length) = patterns.match_at(&self.held[at..]) {
                self.covered = self.covered.max(at + length);
            }
            if at >= self.covered {
                out.push(self.held[at]);
                self.masking = false;
            } else if !self.masking {
                out.extend_from_slice(MASK);
                self.masking = true;
            }
        }
        self.held.drain(..decided);
        self.covered = self.covered.saturating_sub(decided);
        out
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_forms_of_a_secret_are_masked() {
        let secret = Secret::new(r#"it's "a\pass$word"#);
        let masker = Masker::new([&secret]);
        let plain = secret.expose_str().unwrap();
        for text in [
            plain.to_owned(),
            BASE64_STANDARD.encode(plain),
            serde_json::to_string(plain).unwrap().trim_matches('"').to_owned(),
            plain.replace('\'', r"'\''"),
            r#"it\'s\ \"a\\pass\$word"#.to_owned(),
            r#"it's \"a\\pass\$word"#.to_owned(),
        ] {
            assert_eq!(masker.mask(&format!("before {text} after")), "before *** after", "{text}");
        }
        for before in ["a:", "ab:", "abc:"] {
            let coded = BASE64_STANDARD.encode(format!("{before}{plain}:end"));
            let shown = masker.mask(&coded).into_owned();
            assert!(shown.contains("***") && shown.len() < coded.len() - plain.len(), "{shown}");
        }
    }

    #[test]
    fn a_key_file_is_masked_line_by_line() {
        let masker =
            Masker::new([&Secret::new("-----BEGIN KEY-----\nAAAABBBBCCCCDDDD\n-----END KEY-----\n")]);
        assert_eq!(
            masker.mask("  -----BEGIN KEY-----\n  AAAABBBBCCCCDDDD\n"),
            "  -----BEGIN KEY-----\n  ***\n"
        );
    }

    #[test]
    fn short_secrets_are_left_and_later_ones_are_masked_in_clones() {
        let masker = Masker::new([&Secret::new("abc")]);
        let clone = masker.clone();
        assert!(matches!(clone.mask("abcdef"), Cow::Borrowed("abcdef")));
        masker.add(&Secret::new("cdef"));
        assert_eq!(clone.mask("abcdef"), "ab***");
    }

    #[test]
    fn only_what_could_begin_a_secret_is_held_back() {
        let mut stream = Masker::new([&Secret::new("a much longer secret than the line")]).stream();
        assert_eq!(stream.push(b"50 %\n"), b"50 %\n");
        assert_eq!(stream.push(b"now a mu"), b"now ");
        assert_eq!(stream.push(b"le\n"), b"a mule\n");
    }

    #[test]
    fn overlapping_secrets_hide_each_other_whole() {
        let masker = Masker::new([&Secret::new("abcd"), &Secret::new("cdefg")]);
        assert_eq!(masker.mask("-abcdefg-abcde-"), "-***-***e-");
    }

    proptest! {
        // A small alphabet, so that secrets overlap, repeat and almost begin all the time.
        #[test]
        fn no_chunking_reveals_a_secret(
            secrets in prop::collection::vec("[ab'\"]{4,9}", 1..4),
            pieces in prop::collection::vec((any::<prop::sample::Index>(), "[ab'\" ]{0,6}", 0_u8..4), 0..12),
            cuts in prop::collection::vec(0_usize..8, 1..40),
        ) {
            let mut text = String::new();
            for (index, noise, coat) in pieces {
                let secret = index.get(&secrets);
                text += &noise;
                text += &match coat {
                    0 => BASE64_STANDARD.encode(secret),
                    1 => serde_json::to_string(secret).unwrap(),
                    _ => secret.clone(),
                };
            }
            let known: Vec<Secret> = secrets.iter().map(|s| Secret::new(s.as_str())).collect();
            let masker = Masker::new(&known);
            let mut stream = masker.stream();
            let (mut out, mut rest) = (Vec::new(), text.as_bytes());
            for cut in cuts.iter().cycle().take(text.len() + 1) {
                let (chunk, next) = rest.split_at((*cut).min(rest.len()));
                out.extend(stream.push(chunk));
                rest = next;
            }
            out.extend(stream.push(rest));
            out.extend(stream.finish());
            let out = String::from_utf8(out).unwrap();
            let whole = masker.mask(&text).into_owned();
            prop_assert_eq!(&out, &whole);
            for secret in &secrets {
                prop_assert!(!out.contains(secret.as_str()), "{} shows {}", out, secret);
                prop_assert!(!out.contains(&BASE64_STANDARD.encode(secret)));
            }
        }
    }
}
