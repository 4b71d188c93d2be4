//! What was seen of a unit's output so far.

use guywire_secrets::{MaskStream, Masker};

/// How much of the end of the output is kept for whoever asks how it went.
const TAIL: usize = 16 * 1024;

/// The place in a unit's output, which stays when connections go.
pub(super) struct Follow<'a> {
    offset: u64,
    masked: MaskStream,
    tail: Vec<u8>,
    sink: &'a mut (dyn FnMut(&[u8]) + Send),
}

impl<'a> Follow<'a> {
    /// At the beginning.
    pub(super) fn new(masker: &Masker, sink: &'a mut (dyn FnMut(&[u8]) + Send)) -> Self {
        Self { offset: 0, masked: masker.stream(), tail: Vec::new(), sink }
    }

    /// How many bytes were taken.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Takes a chunk from the machine and passes it on without secrets.
    pub(super) fn take(&mut self, chunk: &[u8]) {
        self.offset += chunk.len() as u64;
        let shown = self.masked.push(chunk);
        self.show(&shown);
    }

    /// Passes on what was held back, and gives the end of all that was.
    pub(super) fn finish(&mut self) -> String {
        let shown = self.masked.finish();
        self.show(&shown);
        String::from_utf8_lossy(&self.tail).into_owned()
    }

    fn show(&mut self, shown: &[u8]) {
        if shown.is_empty() {
            return;
        }
        (self.sink)(shown);
        self.tail.extend_from_slice(shown);
        // In large steps, so that a stream of small chunks is not moved about all the time.
        if self.tail.len() > 2 * TAIL {
            self.tail.drain(..self.tail.len() - TAIL);
        }
    }
}
