//! The text of `passwd`, `shadow` and `group` with a machine's user in it.

use guywire_model::Login;

use super::error::{Result, invalid};

/// The first number that Debian gives to a person.
const FIRST_UID: u32 = 1000;

/// The files that say who there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Accounts {
    /// `/etc/passwd`.
    pub(super) passwd: String,
    /// `/etc/shadow`.
    pub(super) shadow: String,
    /// `/etc/group`.
    pub(super) group: String,
}

/// A user in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    /// The user's number, and that of the group of the same name.
    pub(super) id: u32,
    /// The user's directory, relative to the root.
    pub(super) home: String,
}

/// Checks who may log in before anything is made.
pub(super) fn check(login: &Login) -> Result<()> {
    let user = &login.user;
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_' || c == b'-';
    let first = user.bytes().next().is_some_and(|c| c.is_ascii_lowercase() || c == b'_');
    if user.len() > 32 || !first || !user.bytes().all(plain) {
        return Err(invalid(format!(
            "user {user:?}: use 1 to 32 of a-z, 0-9, '_' and '-', beginning with a letter or '_'"
        )));
    }
    if login.authorized_keys.is_empty() && login.password.is_none() {
        return Err(invalid(format!("user {user}: nobody could log in; give a public key or a password")));
    }
    for key in &login.authorized_keys {
        if key.contains(['\n', '\r', '\0']) || key.split_whitespace().count() < 2 {
            return Err(invalid(format!(
                "user {user}: an authorized key is not one line of `TYPE BASE64 [COMMENT]`"
            )));
        }
    }
    Ok(())
}

impl Accounts {
    /// Puts the user in, or finds root, and sets the hash of the password if there is one.
    pub(super) fn admit(&mut self, name: &str, hash: Option<&str>) -> Result<User> {
        let user = match self.find(name) {
            Some((id, home)) if name == "root" || id >= FIRST_UID => User { id, home },
            Some(_) => {
                return Err(invalid(format!(
                    "user {name}: a system user of Debian has that name; choose another"
                )));
            }
            None => self.add(name),
        };
        if let Some(hash) = hash {
            let set = |line: &str| {
                let mut fields: Vec<&str> = line.split(':').collect();
                if fields.len() > 1 && fields[0] == name {
                    fields[1] = hash;
                }
                fields.join(":")
            };
            self.shadow = self.shadow.lines().map(set).map(|line| line + "\n").collect();
        }
        Ok(user)
    }

    fn find(&self, name: &str) -> Option<(u32, String)> {
        let fields = self.passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let found = fields.into_iter().find(|fields| fields.first() == Some(&name))?;
        Some((found.get(2)?.parse().ok()?, found.get(5)?.trim_start_matches('/').to_owned()))
    }

    fn add(&mut self, name: &str) -> User {
        let numbers = |text: &str| -> Vec<u32> {
            text.lines().filter_map(|line| line.split(':').nth(2)?.parse().ok()).collect()
        };
        let taken = [numbers(&self.passwd), numbers(&self.group)].concat();
        let id = (FIRST_UID..u32::MAX).find(|id| !taken.contains(id)).expect("more numbers than lines");
        append(&mut self.passwd, &format!("{name}:x:{id}:{id}::/home/{name}:/bin/bash"));
        append(&mut self.shadow, &format!("{name}:*:19700:0:99999:7:::"));
        append(&mut self.group, &format!("{name}:x:{id}:"));
        User { id, home: format!("home/{name}") }
    }
}

fn append(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Accounts {
        Accounts {
            passwd: "root:x:0:0:root:/root:/bin/bash\nsshd:x:102:65534::/run/sshd:/usr/sbin/nologin\n".into(),
            shadow: "root:*:20772:0:99999:7:::\nsshd:!:20772::::::\n".into(),
            group: "root:x:0:\nother:x:1000:".into(),
        }
    }

    #[test]
    fn root_gets_a_password_and_nothing_else_changes() {
        let mut text = accounts();
        let user = text.admit("root", Some("$6$salt$hash")).unwrap();
        assert_eq!(user, User { id: 0, home: "root".into() });
        assert_eq!(text.shadow, "root:$6$salt$hash:20772:0:99999:7:::\nsshd:!:20772::::::\n");
        assert_eq!(text.passwd, accounts().passwd);
    }

    #[test]
    fn a_new_user_gets_a_free_number() {
        let mut text = accounts();
        let user = text.admit("ops", None).unwrap();
        assert_eq!(user, User { id: 1001, home: "home/ops".into() });
        assert!(text.passwd.ends_with("ops:x:1001:1001::/home/ops:/bin/bash\n"));
        assert!(text.group.ends_with("other:x:1000:\nops:x:1001:\n"));
        assert!(text.shadow.ends_with("ops:*:19700:0:99999:7:::\n"));
        assert!(accounts().admit("sshd", None).is_err());
    }

    #[test]
    fn a_login_that_cannot_work_is_refused() {
        let login = |user: &str, keys: &[&str]| Login {
            user: user.into(),
            authorized_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            password: None,
        };
        check(&login("ops", &["ssh-ed25519 AAAA me"])).unwrap();
        for (user, keys) in [
            ("ops", vec![]),
            ("Ops", vec!["a b"]),
            ("a:b", vec!["a b"]),
            ("", vec!["a b"]),
            ("ops", vec!["a b\nc d"]),
            ("ops", vec!["nonsense"]),
        ] {
            assert!(check(&login(user, &keys)).is_err(), "{user} {keys:?}");
        }
    }
}
