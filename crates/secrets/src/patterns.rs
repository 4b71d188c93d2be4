//! The forms in which a secret may turn up in output.

use std::collections::BTreeSet;

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE},
};
use zeroize::Zeroizing;

use crate::Secret;

/// The shortest form that is masked. Three characters turn up everywhere by chance: masking them would
/// make output unreadable and tell where the secret stands, and so short a secret is none.
pub const SHORTEST: usize = 4;
/// The shortest line of a secret of several lines that is masked by itself.
const SHORTEST_LINE: usize = 16;

/// All forms to look for, by their first byte.
pub struct Patterns {
    by_first: Vec<Vec<Zeroizing<Vec<u8>>>>,
    longest: usize,
}

impl Patterns {
    /// No forms at all.
    pub fn new() -> Self {
        Self { by_first: (0..256).map(|_| Vec::new()).collect(), longest: 0 }
    }

    /// These forms and those of another secret.
    pub fn with(&self, secret: &Secret) -> Self {
        let mut patterns = Self { by_first: self.by_first.clone(), longest: self.longest };
        for form in forms(secret.expose()) {
            let bucket = &mut patterns.by_first[usize::from(form[0])];
            if !bucket.iter().any(|known| **known == form) {
                patterns.longest = patterns.longest.max(form.len());
                bucket.push(Zeroizing::new(form));
            }
        }
        patterns
    }

    /// The length of the longest form.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The length of the longest form that stands at the beginning of `text`.
    pub fn match_at(&self, text: &[u8]) -> Option<usize> {
        self.candidates(text).filter(|form| text.starts_with(form)).map(|form| form.len()).max()
    }

    /// Whether `text` is the beginning of a form, so that more output could complete it.
    pub fn may_begin(&self, text: &[u8]) -> bool {
        self.candidates(text).any(|form| form.len() > text.len() && form.starts_with(text))
    }

    fn candidates(&self, text: &[u8]) -> impl Iterator<Item = &Zeroizing<Vec<u8>>> {
        text.first().into_iter().flat_map(|first| &self.by_first[usize::from(*first)])
    }
}

/// A secret as it is, and as base64, JSON and shells write it.
fn forms(secret: &[u8]) -> BTreeSet<Vec<u8>> {
    // What is too short by itself is not looked for in any coat either.
    if secret.len() < SHORTEST {
        return BTreeSet::new();
    }
    let mut forms = BTreeSet::from([secret.to_vec()]);
    let lines: Vec<&[u8]> = secret.split(|c| *c == b'\n').map(<[u8]>::trim_ascii).collect();
    if lines.len() > 1 {
        // A key file comes out indented, or line by line. Its `-----BEGIN` lines are no secret.
        forms.extend(
            lines.iter().filter(|l| l.len() >= SHORTEST_LINE && !l.starts_with(b"-----")).map(|l| l.to_vec()),
        );
        forms.insert(secret.trim_ascii().to_vec());
    }
    for engine in [BASE64_STANDARD, BASE64_URL_SAFE] {
        let whole = engine.encode(secret);
        let bare = whole.trim_end_matches('=');
        for width in [64, 76] {
            let wrapped = bare.as_bytes().chunks(width).filter(|line| line.len() >= SHORTEST_LINE);
            forms.extend(wrapped.map(<[u8]>::to_vec));
        }
        forms.extend([bare.as_bytes().to_vec(), whole.as_bytes().to_vec()]);
        // In the middle of something longer it starts one or two bytes off, and the characters at its
        // ends are shared with its neighbours: what is between them is the secret's alone.
        for offset in 0..3 {
            let shifted = engine.encode([&vec![0; offset], secret].concat());
            let (first, last) = ((offset * 8).div_ceil(6), (offset + secret.len()) * 8 / 6);
            forms.insert(shifted.as_bytes()[first..last].to_vec());
        }
    }
    if let Ok(text) = std::str::from_utf8(secret) {
        let json = serde_json::to_string(text).expect("a string is always JSON");
        forms.insert(json.as_bytes()[1..json.len() - 1].to_vec());
        forms.insert(text.replace('\'', r"'\''").into_bytes());
        forms.insert(text.replace('\'', r#"'"'"'"#).into_bytes());
        forms.insert(escape(text, |c| r#"\"$`"#.contains(c)));
        forms.insert(escape(text, |c| !c.is_alphanumeric() && !"%+,-./:=@_".contains(c)));
    }
    forms.retain(|form| form.len() >= SHORTEST);
    forms
}

fn escape(text: &str, special: impl Fn(char) -> bool) -> Vec<u8> {
    let mut out = String::new();
    for c in text.chars() {
        if special(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out.into_bytes()
}
