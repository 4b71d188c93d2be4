//! Which part of a content is asked for (RFC 9110, section 14). Pure.

use http::{HeaderMap, header};

/// The part that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it.
    Whole,
    /// From a byte on, so many.
    Bytes {
        /// The first byte.
        from: u64,
        /// How many.
        count: u64,
    },
    /// There is nothing where it was asked for.
    Nothing,
}

/// The part of a content of `size` bytes with the entity tag `tag` (in quotes) that the headers ask for. Whatever is no
/// single range of bytes is answered with the whole, as the RFC allows.
pub(super) fn part(headers: &HeaderMap, size: u64, tag: &str) -> Part {
    // A caller who has some version already is told first whether it is the present one.
    if headers.contains_key(header::IF_NONE_MATCH) {
        return Part::Whole;
    }
    if headers.get(header::IF_RANGE).is_some_and(|known| known.as_bytes() != tag.as_bytes()) {
        return Part::Whole;
    }
    let Some(text) = headers.get(header::RANGE).and_then(|value| value.to_str().ok()) else {
        return Part::Whole;
    };
    let Some((unit, range)) = text.split_once('=') else { return Part::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Part::Whole;
    }
    let Some((first, last)) = range.trim().split_once('-') else { return Part::Whole };
    match (number(first), number(last)) {
        (Number::Is(from), Number::Is(last)) if last < from => Part::Whole,
        (Number::Is(from), last) if !matches!(last, Number::Wrong) => {
            if from >= size {
                return Part::Nothing;
            }
            let end = match last {
                Number::Is(last) => last.saturating_add(1).min(size),
                _ => size,
            };
            Part::Bytes { from, count: end - from }
        }
        (Number::Missing, Number::Is(count)) => {
            let count = count.min(size);
            if count == 0 { Part::Nothing } else { Part::Bytes { from: size - count, count } }
        }
        _ => Part::Whole,
    }
}

enum Number {
    Missing,
    Is(u64),
    Wrong,
}

fn number(text: &str) -> Number {
    match text {
        "" => Number::Missing,
        _ if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            // More digits than a number has mean "beyond any end".
            Number::Is(text.parse().unwrap_or(u64::MAX))
        }
        _ => Number::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_found_and_anything_else_is_the_whole() {
        let bytes = |from, count| Part::Bytes { from, count };
        let cases = [
            ("bytes=0-0", bytes(0, 1)),
            ("bytes=0-9", bytes(0, 10)),
            ("bytes=2-", bytes(2, 8)),
            ("bytes=2-99999999999999999999999", bytes(2, 8)),
            ("bytes=-3", bytes(7, 3)),
            ("bytes=-99", bytes(0, 10)),
            ("Bytes=9-9", bytes(9, 1)),
            ("bytes=10-", Part::Nothing),
            ("bytes=99999999999999999999999-", Part::Nothing),
            ("bytes=-0", Part::Nothing),
            ("bytes=5-4", Part::Whole),
            ("bytes=-", Part::Whole),
            ("bytes=a-b", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("lines=0-1", Part::Whole),
            ("0-1", Part::Whole),
        ];
        for (text, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, text.parse().expect("a header"));
            assert_eq!(part(&headers, 10, "\"t\""), expected, "{text}");
        }
    }

    #[test]
    fn a_range_of_another_version_is_not_given() {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, "bytes=1-2".parse().expect("a header"));
        headers.insert(header::IF_RANGE, "\"old\"".parse().expect("a header"));
        assert_eq!(part(&headers, 10, "\"new\""), Part::Whole);
        assert_eq!(part(&headers, 10, "\"old\""), Part::Bytes { from: 1, count: 2 });
        headers.insert(header::IF_NONE_MATCH, "\"older\"".parse().expect("a header"));
        assert_eq!(part(&headers, 10, "\"old\""), Part::Whole);
    }
}
