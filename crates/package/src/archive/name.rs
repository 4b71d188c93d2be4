//! Which names entries may have, and how one file's reference to another becomes such a name.

/// Checks an entry's name and gives it as text, or says why it is refused.
pub fn check(raw: &[u8], longest: usize) -> Result<String, String> {
    if raw.len() > longest {
        return Err(format!("its name has {} bytes; at most {longest} are taken", raw.len()));
    }
    let Ok(name) = std::str::from_utf8(raw) else {
        return Err("its name is not UTF-8".into());
    };
    if name.contains('\\') {
        return Err("its name contains a backslash; parts of a name are separated by '/'".into());
    }
    if name.chars().any(char::is_control) {
        return Err("its name contains a control character".into());
    }
    if name.starts_with('/') || name.as_bytes().get(1) == Some(&b':') {
        return Err("its name is absolute; names are relative to the package".into());
    }
    let parts = name.strip_suffix('/').unwrap_or(name);
    for part in parts.split('/') {
        match part {
            "" => return Err("its name has an empty part".into()),
            "." | ".." => {
                return Err(format!("its name has the part '{part}', which could lead out of the package"));
            }
            _ if part.len() > 255 => return Err("a part of its name is longer than 255 bytes".into()),
            _ => {}
        }
    }
    Ok(name.to_owned())
}

/// The directory that a file is in, empty for the root.
pub fn parent(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// The last part of a path.
pub fn base(file: &str) -> &str {
    file.rsplit_once('/').map_or(file, |(_, base)| base)
}

/// Follows a relative reference from a directory; nothing where it leads out of the package.
pub fn join(directory: &str, reference: &str) -> Option<String> {
    if reference.starts_with('/') || reference.contains('\\') || reference.contains('\0') {
        return None;
    }
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in reference.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_stay_inside() {
        for (directory, reference, expected) in [
            ("Definitions", "a.yaml", Some("Definitions/a.yaml")),
            ("Definitions", "../Scripts/a.py", Some("Scripts/a.py")),
            ("Definitions", "./x//y", Some("Definitions/x/y")),
            ("", "a.yaml", Some("a.yaml")),
            ("", "../a.yaml", None),
            ("Definitions", "../../etc/passwd", None),
            ("Definitions", "/etc/passwd", None),
            ("Definitions", "..", None),
            ("a", "b\\c", None),
        ] {
            assert_eq!(join(directory, reference).as_deref(), expected, "{directory} + {reference}");
        }
    }

    #[test]
    fn names_are_judged() {
        for (name, complaint) in [
            ("a/b.yaml", None),
            ("a/", None),
            ("..a/b", None),
            ("../a", Some("'..'")),
            ("a/../b", Some("'..'")),
            ("a/./b", Some("'.'")),
            ("/a", Some("absolute")),
            ("C:/a", Some("absolute")),
            ("a//b", Some("empty part")),
            ("", Some("empty part")),
            ("a\\b", Some("backslash")),
            ("a\0b", Some("control character")),
        ] {
            match (check(name.as_bytes(), 100), complaint) {
                (Ok(got), None) => assert_eq!(got, name),
                (Err(reason), Some(part)) => assert!(reason.contains(part), "{name:?}: {reason}"),
                (got, expected) => panic!("{name:?}: {got:?}, expected {expected:?}"),
            }
        }
        assert!(check(&[0xff], 100).unwrap_err().contains("UTF-8"));
        assert!(check(&[b'a'; 101], 100).unwrap_err().contains("101 bytes"));
    }
}
