//! Words for a shell.

/// Writes `words` as one command line that a POSIX shell takes apart into the same words again.
pub fn quote<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> String {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"%+,-./:=@_".contains(&c);
    let mut line = String::new();
    for word in words {
        let word = word.as_ref();
        if !line.is_empty() {
            line.push(' ');
        }
        // A word with `=` could be an assignment, and one with `~` at its front a home directory.
        if !word.is_empty() && word.bytes().all(plain) && !word.contains('=') {
            line.push_str(word);
        } else {
            line.push('\'');
            line.push_str(&word.replace('\'', r"'\''"));
            line.push('\'');
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_words_stay_as_they_are() {
        assert_eq!(
            quote(["ls", "-l", "/a b", "", "it's", "A=b", "~", "$x"]),
            r"ls -l '/a b' '' 'it'\''s' 'A=b' '~' '$x'"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_shell_gives_the_same_words_back(words in prop::collection::vec("[^\0]{0,12}", 1..5)) {
            let line = format!("printf '%s\\0' {}", quote(&words));
            let out = Command::new("/bin/sh").arg("-c").arg(&line).output().unwrap();
            let wanted: String = words.iter().flat_map(|word| [word, "\0"]).collect();
            prop_assert_eq!(String::from_utf8(out.stdout).unwrap(), wanted);
        }
    }
}
