//! Server-sent events, as the HTML standard has them. Pure: bytes in, messages out.

/// The longest line that is kept; a plan of thousands of tasks fits.
const LONGEST: usize = 16 << 20;

/// One message.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Its type; `message` if it has none.
    pub event: String,
    /// Its text.
    pub data: String,
    /// Where to go on after it, if it says so.
    pub id: Option<String>,
}

/// Reads messages out of bytes that come in pieces of any size.
#[derive(Debug, Default)]
pub struct Parser {
    buffer: Vec<u8>,
    event: String,
    data: String,
    id: Option<String>,
}

impl Parser {
    /// Takes bytes in and gives the messages that are whole now; an error if a line is absurdly long.
    pub fn feed(&mut self, bytes: &[u8]) -> anyhow::Result<Vec<Message>> {
        let mut messages = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.buffer.extend_from_slice(piece);
            if self.buffer.len() + self.data.len() > LONGEST {
                anyhow::bail!("the manager sends an event that is longer than {LONGEST} bytes");
            }
            if !piece.ends_with(b"\n") {
                break;
            }
            let line = std::mem::take(&mut self.buffer);
            let line = String::from_utf8_lossy(&line);
            messages.extend(self.line(line.trim_end_matches(['\r', '\n'])));
        }
        Ok(messages)
    }

    fn line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            let id = self.id.take();
            let (event, data) = (std::mem::take(&mut self.event), std::mem::take(&mut self.data));
            if data.is_empty() {
                return None;
            }
            let event = if event.is_empty() { "message".to_owned() } else { event };
            return Some(Message { event, data: data.trim_end_matches('\n').to_owned(), id });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" => self.id = Some(value.to_owned()),
            // A comment has an empty name; it only shows that somebody is there.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        ": hello\n\nevent: plan\nid: 7\ndata: {\"a\":\ndata: 1}\n\nretry: 1000\n\ndata:x\r\n\r\nevent: y\n\n";

    #[test]
    fn messages_are_the_same_however_the_bytes_are_cut() {
        let message = |event: &str, data: &str, id: Option<&str>| Message {
            event: event.into(),
            data: data.into(),
            id: id.map(str::to_owned),
        };
        let expected = [message("plan", "{\"a\":\n1}", Some("7")), message("message", "x", None)];
        for size in 1..TEXT.len() {
            let mut parser = Parser::default();
            let chunks = TEXT.as_bytes().chunks(size);
            let messages: Vec<Message> =
                chunks.flat_map(|chunk| parser.feed(chunk).expect("short lines")).collect();
            assert_eq!(messages, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..17).any(|_| parser.feed(&piece).is_err());
        assert!(refused);
    }
}
