//! Secrets are shown once, kept as hashes, and end.
